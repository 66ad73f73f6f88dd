"""Every file that a user names, with hostile bytes in it: read, or refused as a UsageError, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from stockade.answers.output_schema import read_schema
from stockade.bots.file import read_bot
from stockade.cli.run import read_task
from stockade.cli.trust import command as trust_command
from stockade.core.errors import StockadeError
from stockade.fleet.results import read_results, results_of
from stockade.fleet.tasks import Selection, read_tasks
from stockade.models.pricing import parse_prices, price_of
from stockade.models.scripted import ScriptedModel
from stockade.paths import open_regular, read_regular, read_toml
from stockade.plugins.wasm.policy import read_policy
from stockade.runtime.models import read_grammar
from stockade.runtime.settings import load
from stockade.runtime.spec import RunSpec
from stockade.runtime.user_config import write_setting
from stockade.tools.mcp.config import read_config
from stockade.tools.tool_files import read_tool
from stockade_sandbox.toolchains import find

HOSTILE = {
    "empty": b"",
    "zeros": bytes(4096),
    "not utf-8": b"a = \xff\xfe",
    "deep lists": b"a = " + b"[" * 100_000,
    "deep json": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "long number": b"a = " + b"9" * 5000,
    "long json number": b"9" * 5000,
    "infinite": b"max_turns = inf\ntimeout = nan\n",
    "huge exponent": b'{"content": "x", "delay_s": 1e999}',
    "lone surrogate": b'{"content": "\\ud800"}',
    "surrogate key": b'{"\\ud800": 1}',
    "wrong date": b"a = 9999-99-99",
    "control characters": b'prompt = "\x1b[2J"\n',
    "dotted keys": b"a" + b".a" * 20_000 + b" = 1",
    "yaml laughs": b"name: &b [x]\nusage: [&c [*b,*b,*b,*b], &d [*c,*c,*c,*c], &e [*d,*d,*d,*d], &f [*e,*e,*e,*e]]\n",
    "deep flow": b"a: " + b"[" * 60_000,
    "yaml tag": b"!!python/object/apply:os.system ['touch /tmp/x']",
    "yaml deep": b"- " * 5000 + b"a",
    "byte order mark": b"\xef\xbb\xbfa = 1",
    "list": b"[1, 2]",
    "null": b"null",
    "half a line": b'{"content": "x"',
    "nulls in text": b'{"content": "a\\u0000b", "tool_calls": [null]}',
    "odd call": b'{"tool_calls": [{"id": 7, "function": {"name": "shell", "arguments": {"a": [1]}}}]}',
    "wrong types": b'name = 1\nprompt = "x"\ntools = "shell"\n',
    "nested tables": b'prompt = "x"\ntools = [["shell"]]\nenv = [1]\nmax_turns = {a = 1}\n',
}  # fmt: skip


def said(error: StockadeError | None) -> None:
    """One line that can be shown anywhere."""
    if error is not None:
        assert "\n" not in error.message
        assert len(error.message) < 1000
        error.message.encode()


def refused(read: Callable[[], object]) -> StockadeError | None:
    try:
        read()
    except StockadeError as error:
        return error
    return None


async def _script(path: Path) -> None:
    async with ScriptedModel(path):
        pass


VERSION_FILES = ("package.json", "mise.toml", "rust-toolchain.toml", "go.mod", ".tool-versions")
READERS: dict[str, Callable[[Path], object]] = {
    "settings": lambda path: load({}, {}, path.parent, path),
    "bot": read_bot,
    "tool.toml": read_tool,
    "tool.yaml": lambda path: read_tool(path.rename(path.with_suffix(".yaml"))),
    "mcp": lambda path: read_config(path, {}, {}),
    "prices": lambda path: price_of("openai/x", path),
    "task": lambda path: read_task(f"@{path}"),
    "tasks.jsonl": lambda path: read_tasks(path, RunSpec(), Selection()),
    "tasks.csv": lambda path: read_tasks(path.rename(path.with_suffix(".csv")), RunSpec(), Selection()),
    "task folder": lambda path: read_tasks(_in_a_folder(path, "task.json"), RunSpec(), Selection()),
    "task words": lambda path: read_tasks(_in_a_folder(path, "task.md"), RunSpec(), Selection()),
    "results": read_results,
    "results, or tasks": lambda path: results_of(path.rename(path.with_suffix(".jsonl"))),
    "schema": lambda path: read_schema(str(path)),
    "grammar": lambda path: read_grammar(str(path), "llama-server", "json"),
    "wasm.toml": read_policy,
    "wasm.yaml": lambda path: read_policy(path.rename(path.with_suffix(".yaml"))),
    "new prices": lambda path: parse_prices(path.read_bytes(), "hostile", "2026-11-29"),
    "written setting": lambda path: write_setting("model", "scripted/x.jsonl", path),
    "version files": lambda path: find(_in_a_folder(path, *VERSION_FILES).joinpath("one"), {}, path.parent),
}


def _in_a_folder(path: Path, *names: str) -> Path:
    """What holds a folder with it, under each name."""
    inner = path.parent / "outer" / "one"
    inner.mkdir(parents=True)
    for name in names:
        inner.joinpath(name).write_bytes(path.read_bytes())
    return inner.parent


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", HOSTILE)
def test_it_is_read_or_refused(tmp_path: Path, reader: str, what: str) -> None:
    path = tmp_path / "hostile.toml"
    path.write_bytes(HOSTILE[what])
    said(refused(lambda: READERS[reader](path)))


@pytest.mark.parametrize("what", HOSTILE)
def test_a_script_is_read_or_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(HOSTILE[what])
    said(refused(lambda: anyio.run(_script, path)))


@pytest.mark.parametrize("name", ["stockade.toml", ".mcp.json"])
@pytest.mark.parametrize("what", HOSTILE)
def test_it_is_trusted_or_refused(tmp_path: Path, name: str, what: str) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[what])
    callback = trust_command.callback
    assert callback is not None
    said(refused(lambda: callback(str(path), yes=True)))
    said(refused(lambda: load({}, {}, tmp_path, tmp_path / "none")))


def test_no_name_holds_it_up(tmp_path: Path) -> None:
    for name, words in (("a\0b", "this is no path"), ("none", "No such file"), ("", "Is a directory")):
        with pytest.raises(OSError, match=words):
            open_regular(tmp_path / name)


def test_no_more_is_read_than_wanted(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, 10) == b"x" * 11
    with pytest.raises(StockadeError, match="larger than 10 bytes: this is no table"):
        read_toml(path, 10, "table")
