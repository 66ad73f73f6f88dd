"""What a run costs: our table, the person's own, and what is unknown."""

import json
from pathlib import Path

import anyio.to_thread
import pytest

from stockade.cli.model_prices import prices as command
from stockade.core.errors import UsageError
from stockade.core.messages import Usage
from stockade.models.pricing import (
    FREE,
    MAX_PRICES,
    Price,
    own_table,
    parse_prices,
    price_of,
    tables,
    updated_table,
    write_prices,
)
from tests.support.fake_openai import FakeOpenAI


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


LITELLM = {
    "sample_spec": {"litellm_provider": "one of https://docs.litellm.ai/docs/providers", "input_cost_per_token": 0},
    "gpt-9": {"litellm_provider": "openai", "input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05,
              "cache_read_input_token_cost": 1.25e-07, "max_input_tokens": 272000, "supports_vision": True},
    "gemini/gemini-9": {"litellm_provider": "gemini", "input_cost_per_token": 3e-07, "output_cost_per_token": 2.5e-06},
    "whisper-1": {"litellm_provider": "openai", "input_cost_per_second": 0.0001},
    "bedrock/x": {"litellm_provider": "bedrock", "input_cost_per_token": 1, "output_cost_per_token": 1},
}  # fmt: skip


def test_the_table_that_litellm_publishes_is_understood() -> None:
    write_prices(parse_prices(json.dumps(LITELLM).encode(), "here", "2026-11-25"))
    table = tables()[updated_table()]
    assert set(table.prices) == {"openai/gpt-9", "gemini/gemini-9"}
    assert price_of("openai/gpt-9") == Price(
        input=1.25, output=10, cached=0.125, window=272_000, images=True, date="2026-11-25"
    )
    assert (table.date, table.source) == ("2026-11-25", "here")
    told = price_of("openai/gpt-9")
    assert told is not None
    assert told.told["context_window"] == "the price table of 2026-11-25"


def test_a_newer_table_goes_before_ours_and_behind_what_the_user_wrote() -> None:
    text = 'date = "2026-12-01"\n"openai/gpt-4o" = { input = 7, output = 8 }\n"openai/x" = { input = 1, output = 2 }\n'
    write_prices(parse_prices(text.encode(), "a", "2026-11-25"))
    newer = price_of("openai/gpt-4o")
    assert newer == Price(input=7, output=8, date="2026-12-01")
    older = price_of("openai/o3")
    assert older is not None
    assert older.date == "2026-11-30"
    own_table().parent.mkdir(parents=True, exist_ok=True)
    own_table().write_text('"openai/gpt-4o" = { input = 9, output = 9 }')
    assert price_of("openai/gpt-4o") == Price(input=9, output=9)
    assert price_of("openai/x") == Price(input=1, output=2, date="2026-12-01")


ROW = '"openai/x" = { input = 1, output = 2 }'


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "has the price of no model"),
        (b"\x00\xff", "neither TOML nor JSON"),
        (b"<html>", "neither TOML nor JSON"),
        (b"[1, 2]", "neither TOML nor JSON"),
        (b"{}", "has the price of no model"),
        (b'"a" = { input = 1, output = 2 }', "'a' is no PROVIDER/NAME"),
        (b'"openai/\\u001b[2J" = { input = 1, output = 2 }', "is no PROVIDER/NAME"),
        (b'"openai/x" = { input = inf, output = 2 }', "'openai/x', input"),
        (b'"openai/x" = { input = nan, output = 2 }', "'openai/x', input"),
        (b'"openai/x" = { input = -1, output = 2 }', "'openai/x', input"),
        (f'date = "today"\n{ROW}'.encode(), "'date'"),
        (f"date = 3\n{ROW}".encode(), "'date'"),
        (b"[" * 100_000, "neither TOML nor JSON"),
        (b'{"x":' * 100_000, "neither TOML nor JSON"),
        (b"a." * 100_000 + b"b = 1", "neither TOML nor JSON"),
        (json.dumps({"y": {**LITELLM["gpt-9"], "input_cost_per_token": 10**400}}).encode(), "'openai/y', input"),
        (json.dumps({f"m{n}": LITELLM["gpt-9"] for n in range(MAX_PRICES + 1)}).encode(), "more than 5000 prices"),
        (b" " * 8_000_001, "larger than"),
    ],
)  # fmt: skip
def test_a_hostile_table_is_a_line_and_changes_nothing(data: bytes, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_prices(data, "there", "2026-11-25")
    assert said in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


def asked(*arguments: str) -> int:
    status = command(list(arguments), standalone_mode=False)
    assert isinstance(status, int)
    return status


def test_the_command_says_of_which_day_the_figures_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert asked() == 0
    assert "prices of 2026-11-30 from litellm 1.110.2 (MIT): comes with Stockade" in capsys.readouterr().out
    (tmp_path / "new.json").write_text(json.dumps(LITELLM))
    assert asked("--update", str(tmp_path / "new.json")) == 0
    assert capsys.readouterr().out.startswith("2 prices of 20")
    assert asked("gpt-9", "--json") == 0
    assert json.loads(capsys.readouterr().out)["input"] == 1.25
    assert asked() == 0
    assert capsys.readouterr().out.count("\n") == 2
    with pytest.raises(UsageError, match="nobody says what never costs"):
        asked("never")


@pytest.mark.anyio
async def test_a_table_is_fetched_and_what_is_none_is_a_line() -> None:
    async with FakeOpenAI(routes={"/prices.json": LITELLM, "/none": {"a": 1}}) as server:
        assert await anyio.to_thread.run_sync(asked, "--update", f"{server.url}/prices.json") == 0
        assert price_of("openai/gpt-9") is not None
        for path, said in (("/gone", "it answers 404"), ("/none", "has the price of no model")):
            with pytest.raises(UsageError, match=said):
                await anyio.to_thread.run_sync(asked, "--update", f"{server.url}{path}")
    for address, said in ((f"{server.url}/prices.json", "cannot be fetched"), ("http://1.2.3.4/x", "is not fetched"),
                          ("/nope", "cannot be read"), ("/", "cannot be read")):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            await anyio.to_thread.run_sync(asked, "--update", address)
    assert price_of("openai/gpt-9") is not None
