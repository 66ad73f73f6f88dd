"""The command line itself: quick help, mistakes in one line, no traceback."""

import errno
import importlib
import os
import pwd
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import click
import pytest

from stockade.cli import commands as cli
from stockade.cli.help import TOPICS
from stockade.cli.lazy import COMMANDS, RUNS, SANDBOX
from stockade.cli.ui import failures
from stockade.core.errors import ModelUnavailable, StockadeError, UsageError
from stockade.core.settings import FrontSettings, RunSettings, fields
from stockade.models.providers import FILES, SERVERS
from stockade.store.sqlite import SQLiteStore
from stockade.testing.conformance.store import first, some

HEAVY = ("httpx2", "pydantic", "rich", "anyio", "stockade.runtime.factory", "sqlite3", "asyncio", "stockade.paths")


@pytest.mark.parametrize("asked", [[], ["run"], ["runs"], ["sandbox"], ["doctor"]])
def test_help_imports_nothing_heavy(asked: list[str]) -> None:
    code = (
        f"import sys\nfrom stockade.cli import commands as cli\nstatus = cli.call({[*asked, '--help']!r})\n"
        f"print(status, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_run_that_goes_on_imports_nothing_of_the_coder() -> None:
    code = (
        "import sys\nimport stockade.cli.resume, stockade.runtime.resume\n"
        "begins = ('stockade.plugins.coder',)\n"
        "print([name for name in sys.modules if name.startswith(begins)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


OF_EVENTS = ("pydantic", "msgspec", "asyncio", "anyio", "stockade.core.events", "stockade_sandbox.overlay")
OF_REVIEW = ("pygments", "stockade_sandbox.overlay", "stockade.git", "stockade.runtime.settings", "stockade.models",
             "stockade.loop.run_context", "stockade.runtime.policy")  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "needless"), [(["runs", "list"], OF_EVENTS), (["runs", "show", "x"], OF_REVIEW)], ids=["list", "show"]
)
def test_looking_at_the_record_imports_no_more_than_it_needs(
    asked: list[str], needless: tuple[str, ...], tmp_path: Path
) -> None:
    """Most of what these two cost is what they import."""
    anyio.run(_recorded, tmp_path / "stockade" / "runs.db")
    code = (
        f"import sys\nfrom stockade.cli.commands import call\nstatus = call({asked!r})\n"
        f"print(status, [name for name in {needless!r} if name in sys.modules])"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("STOCKADE_", "LLAMA_"))}
    environ |= {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    assert "do something" in done.stdout


async def _recorded(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.append("x", [first("x", task="do something"), *some(1)])


NOT_FOR_CHANGES = ("stockade.answers", "stockade.approval", "stockade.bots", "stockade.models", "stockade.plugins",
                   "stockade.tools", "stockade.runtime.factory", "stockade.runtime.resume", "stockade_sandbox.agent",
                   "stockade_sandbox.backends", "stockade_sandbox.doctor", "httpx2")  # fmt: skip


@pytest.mark.parametrize("asked", ["diff", "apply", "undo", "discard"])
def test_deciding_on_changes_imports_nothing_of_running(asked: str, tmp_path: Path) -> None:
    code = (
        f"import sys\nfrom stockade.cli.commands import call\nstatus = call([{asked!r}])\n"
        f"print(status, [name for name in sys.modules if name.startswith({NOT_FOR_CHANGES!r})])"
    )
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert done.stdout.splitlines()[-1] == "2 []", done.stderr


TABLES = {
    f"{group}{name}": row
    for group, table in (("", COMMANDS), ("runs ", RUNS), ("sandbox ", SANDBOX))
    for name, row in table.items()
}


@pytest.mark.parametrize("name", TABLES)
def test_the_listed_words_are_those_of_the_command(name: str) -> None:
    where, about = TABLES[name]
    module, _, attribute = where.partition(":")
    command = getattr(importlib.import_module(f"stockade.cli.{module}"), attribute or "command")
    assert isinstance(command, click.Command)
    assert (command.name, command.short_help) == (name.rpartition(" ")[2], about)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], "there is no command 'rum'"),
        (["run", "--foldre", "x", "y"], "No such option"),
        (["run"], "there is no task"),
        (["run", "x", "--max-turns", "many"], "'many' is not a valid integer"),
        (["run", "\x1b[2Jx", "--bot", "\x1b[2J"], "there is no bot '\\x1b[2J'"),
        (["run", " "], "the task is empty"),
        (["run", "@/no/such"], "the task file /no/such cannot be read: No such file or directory"),
        (["run", "x", "--memory", "lots"], "--memory: not a size: 'lots'"),
        (["run", "x", "--net", "some"], "--net: 'some' is not understood"),
        (["run", "x", "--memory", "5"], "--memory: 5 is 5 bytes: at least 8M"),
        (["sandbox", "exec", "--processes", "1", "--", "ls"], "--processes: 1 is too few: at least 8"),
        (
            ["sandbox", "serve", "--listen", "127.0.0.1:0", "--allow", "/srv", "--token-file", "/no", "--net", "some"],
            "--net: 'some' is not understood",
        ),
        (["model", "info", "embedded/nothing"], "no embedded model 'nothing'"),
        (["runs", "show", "nothing"], "there is no run 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cli.call(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, *rest = err.splitlines()
    assert first.startswith("stockade: ")
    assert words in first
    assert all(line.startswith("hint: ") for line in rest)
    assert len(rest) <= 1


def raising(error: BaseException) -> int:
    def work() -> int:
        raise error

    return failures.guarded(work)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (UsageError("no \x1b such", "try\nthat"), 2, "stockade: no \\x1b such\nhint: try that\n"),
        (ModelUnavailable("gone"), 5, "stockade: gone\n"),
        (ExceptionGroup("", [ExceptionGroup("", [UsageError("deep")])]), 2, "stockade: deep\n"),
        (
            ExceptionGroup("", [MemoryError()]),
            4,
            "stockade: there is no memory left for Stockade itself\nhint: free some, or raise its limit: ulimit -v\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/closed/x"),
            2,
            "stockade: /closed/x: Permission denied\nhint: name a file or folder that can be opened\n",
        ),
        (KeyboardInterrupt(), 130, "stockade: interrupted\n"),
        (click.Abort(), 130, "stockade: interrupted\n"),
    ],
)
def test_each_error_has_its_line_and_status(
    error: BaseException, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == status
    assert capsys.readouterr().err == words


def test_a_bug_leaves_its_trace_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert raising(ZeroDivisionError("a\nb")) == 4
    line = capsys.readouterr().err
    assert line.startswith("stockade: this is a bug in Stockade: ZeroDivisionError: a b; the trace is in ")
    with open(line.rsplit(" ", 1)[1].strip()) as file:
        assert "Traceback" in file.read()


def test_where_nobody_knows_the_home_nothing_is_kept_in_the_current_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container, by a number that no account has. On 66bb3dde it was "a bug in Stockade", and
    with an older platformdirs the record was in a folder `~` of the current one.
    """
    variables = [name for name in os.environ if name == "HOME" or name.startswith("XDG_")]
    for name in variables:
        monkeypatch.delenv(name)

    def unknown(_: int) -> object:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    for words in (["runs", "list"], ["run", "x", "--no-folder", "--model", "scripted/s"], ["sandbox", "exec", "true"]):
        assert cli.call(words) == 2
        said = capsys.readouterr()
        assert (said.out, "nobody says where your home is" in said.err) == ("", True)
    assert raising(ZeroDivisionError("x")) == 4
    assert f"the trace is in {tmp_path}/temporary/" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["temporary"]


def test_every_error_of_ours_has_a_status() -> None:
    assert failures.expected(StockadeError("x")) is not None
    assert failures.expected(ValueError("x")) is None


def test_the_help_of_a_run_is_one_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """80 columns and 24 rows; what it leaves out is taken all the same, and told by `help settings`."""
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.call(["run", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 90
    assert cli.call(["help", "settings"]) == 0
    told = capsys.readouterr().out
    every = {*fields(RunSettings), *fields(FrontSettings)}
    assert not [key for key in every if f"\n{key} " not in told]


@pytest.mark.parametrize(("name", "own"), [("code", "--tests"), ("plan", "--ai-name"), ("auto", "--no-own-goal")])
def test_the_help_of_a_bots_command_has_its_own_flags(
    name: str, own: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others are those of `run`."""
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.call([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert len(told.splitlines()) <= 30
    assert own in told
    assert told.endswith("which mean the same: stockade run --help\n")
    assert not {"--model", "--temperature", "--json", "--net"} & set(
        re.findall(r"--[a-z-]+", told.partition("\n\n")[2])
    )


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_has_a_page(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["help", topic]) == 0
    assert len(capsys.readouterr().out) > 300


def test_the_page_on_models_names_the_providers_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["help", "models"]) == 0
    told = capsys.readouterr().out
    assert f"a model of a server: {', '.join(SERVERS)}\n" in told
    assert set(re.findall(r"([a-z-]+)/[A-Z]+", told)) == set(FILES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rnu",), "did you mean run?"),
        (("runs", "shwo"), "did you mean show?"),
        (("model", "pul"), "did you mean pull?"),
        (("tool", "xyz"), "stockade tool --help"),
        (("xyz",), "stockade --help"),
        (("help", "xyz"), "topics are settings"),
    ],
)
def test_what_is_no_command_has_the_nearest(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(list(words)) == 2
    assert said in capsys.readouterr().err
