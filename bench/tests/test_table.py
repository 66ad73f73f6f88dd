from bench.table import draw


def test_a_table_is_aligned_and_valid_markdown() -> None:
    assert draw(["who", "ms"], [["floor", "1.5"], ["ours", "12.0"]]).splitlines() == [
        "| who   |   ms |",
        "|-------|-----:|",
        "| floor |  1.5 |",
        "| ours  | 12.0 |",
    ]
