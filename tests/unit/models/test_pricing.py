"""What a run costs: our table, the person's own, and what is unknown."""

from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.core.messages import Usage
from stockade.models.pricing import FREE, Price, own_table, price_of


def test_cost_counts_what_came_from_the_cache_and_what_went_into_it() -> None:
    price = Price(input=10, output=50, cached=1, cache_write=12.5)
    usage = Usage(prompt_tokens=1000, cached_tokens=600, completion_tokens=100)
    assert price.cost(usage, written_tokens=300) == pytest.approx((100 * 10 + 600 * 1 + 300 * 12.5 + 100 * 50) / 1e6)
    assert Price(input=10, output=50).cost(usage, 300) == pytest.approx((1000 * 10 + 100 * 50) / 1e6)
    assert FREE.cost(usage) == 0


def test_the_table_that_comes_with_it_is_whole() -> None:
    price = price_of("openai/gpt-4o")
    assert price is not None
    assert price.window == 128_000
    assert price_of("openai/gpt-4o-2024-11-20") == price
    assert price_of("anthropic/claude-haiku-4-5-20251001") == price_of("anthropic/claude-haiku-4-5")
    assert price_of("openai/never-heard-of") is None
    assert price_of("openai/gpt-4o-extra") is None


def test_the_persons_own_table_goes_first() -> None:
    own = own_table()
    own.parent.mkdir(parents=True)
    own.write_text('"openai/*" = { input = 1, output = 2 }\n"openai/gpt-4o*" = { input = 3, output = 4 }\n')
    assert price_of("openai/gpt-4o-mini") == Price(input=3, output=4)
    assert price_of("openai/mine") == Price(input=1, output=2)
    assert price_of("anthropic/claude-haiku-4-5") is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"a" = {', "is not TOML"),
        ('"a" = { input = -1, output = 2 }', "'a', input: Input should be greater"),
        ('"a" = { input = 1 }', "'a', output: Field required"),
        ('"a" = 3', "'a': Input should be"),
        ('"a" = { input = 1, output = 2, rebate = 3 }', "'a', rebate: Extra inputs"),
        ("#" * 1_000_001, "larger than"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        price_of("a", tmp_path / "prices.toml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        price_of("a", tmp_path)
