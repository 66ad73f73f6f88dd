import pytest

from bench.figures import Measured, gaps_ms, row, slope_ms, tenth, turn_cpu_ms
from bench.server import Request


def requests(costs_ms: list[float], start_ms: float = 100.0) -> list[Request]:
    """A run whose turns cost `costs_ms` of CPU; wall is 10 ms a turn, 4 of them the server's."""
    cpu = [start_ms]
    for cost in costs_ms:
        cpu.append(cpu[-1] + cost)
    return [
        Request(
            arrived=0.010 * number, sent=0.010 * number + 0.004, cpu_s=spent / 1000, rss_bytes=30_000_000 + number,
            body_bytes=300 + number, prompt_bytes=200, grew=True,
        )
        for number, spent in enumerate(cpu)
    ]  # fmt: skip


def measured(costs_ms: list[float], children_s: float = 0.0) -> Measured:
    found = requests(costs_ms)
    return Measured(len(costs_ms), found, found[-1].cpu_s, children_s)


def test_cpu_of_a_turn_is_a_mean_around_it() -> None:
    run = requests([1.0] * 10 + [3.0] * 10)
    assert turn_cpu_ms(run, 5) == pytest.approx(1.0)
    assert turn_cpu_ms(run, 10) == pytest.approx(2.0)
    assert turn_cpu_ms(run, 20) == pytest.approx(3.0)


def test_a_turn_the_run_did_not_reach_has_no_cost() -> None:
    with pytest.raises(ValueError, match="10 turns, not 11"):
        turn_cpu_ms(requests([1.0] * 10), 11)


def test_the_slope_leaves_the_start_out() -> None:
    assert slope_ms(measured([2.0] * 10), measured([2.0] * 50)) == pytest.approx(2.0)


def test_the_gap_is_the_time_that_is_not_the_servers() -> None:
    assert gaps_ms(requests([1.0] * 3)) == pytest.approx([6.0, 6.0, 6.0])


def test_the_tenth_of_few_values() -> None:
    assert tenth([5.0]) == 5.0
    assert tenth([float(number) for number in range(11)]) == pytest.approx(1.0)


def test_a_row_compares_with_the_floor_of_the_same_round() -> None:
    calm, busy = 1.0, 2.0
    floor = [{n: measured([load] * n) for n in (10, 20)} for load in (calm, busy)]
    ours = [{n: measured([2 * load] * n, children_s=0.02) for n in (10, 20)} for load in (calm, busy)]
    found = row("ours", ours, floor)
    assert found.over_floor == pytest.approx({10: 2.0, 20: 2.0})
    assert found.flat == pytest.approx(1.0)
    assert found.at == pytest.approx({10: 3.0, 20: 3.0})
    assert found.slopes == pytest.approx({"10-20": 3.0})
    assert found.start_ms == pytest.approx(100.0)
    assert found.child_ms == pytest.approx(1.0)
    assert found.gap_ms == pytest.approx(6.0)
    assert (found.first_bytes, found.prompt_bytes, found.grew) == (300, 200, 1.0)
