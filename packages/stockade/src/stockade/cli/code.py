"""What `stockade code` does: one task like any run, or one after the other."""

from collections.abc import Collection, Mapping
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
from pydantic import ValidationError

from stockade.cli import run
from stockade.cli.talk import Talk
from stockade.cli.ui.console import can_ask
from stockade.cli.ui.failures import INTERRUPTED, say
from stockade.cli.ui.line import line_of_here
from stockade.core.errors import StockadeError, UsageError
from stockade.paths import read_regular
from stockade.plugins.coder.bot import CODER, SOLUTION, CoderBot, Wanted
from stockade.plugins.coder.work import MAX_TESTS_BYTES, Plan
from stockade.runtime.settings import Settings
from stockade.runtime.spec import Objects, RunSpec

OWN = ("tests", "example", "repairs", "fresh_starts", "attempt_timeout", "stdin", "output")

ASKED = "a program for: (Enter sends, Alt-Enter: another line, Ctrl-D leaves)"
LEAVE = ("exit", "quit")


def begin(task: str | None, given: Mapping[str, Any], *, worktree: bool = False, talk: Talk | None = None) -> int:
    """The exit status. UsageError for flags that make no sense together."""
    own = {name: given[name] for name in OWN if name in given}
    rest = {name: value for name, value in given.items() if name not in OWN}
    wanted = make_wanted(own)
    if task is None and not (given.keys() & {"json", "quiet", "no_input"}) and can_ask(no_input=False):
        return _one_after_the_other(wanted, rest, worktree=worktree)
    return _one(task, wanted, rest, worktree=worktree, talk=talk)


def _one(task: str | None, wanted: Wanted, rest: Mapping[str, Any], *, worktree: bool, talk: Talk | None = None) -> int:
    def make(settings: Settings, _asks: bool) -> RunSpec:
        wanted.job(settings.options.task)  # what is wrong with the checks is said before anything starts
        return as_coder(settings.options, wanted)

    return run.begin(task, {**rest, "bot": CODER.name}, worktree=worktree, talk=talk, make=make, name="code")


def _one_after_the_other(wanted: Wanted, rest: Mapping[str, Any], *, worktree: bool) -> int:
    """A run for each task that the user types, its program in a file of its own, until they leave or press Ctrl-C."""
    line, status, names = line_of_here({}), 0, set[str]()
    line.bar = lambda: ASKED
    folder = Path(rest.get("folder", ("",))[0].partition(":")[0]).expanduser()
    while (task := anyio.run(line.read)) is not None and task.lower() not in LEAVE:
        if not task:
            continue
        names.add(name := _free(folder, PurePosixPath(wanted.output), names))
        try:
            status = _one(task, wanted.model_copy(update={"output": name}), rest, worktree=worktree)
        except StockadeError as error:
            say(error.message, error.hint)
        if status == INTERRUPTED:
            return status
    return 0


def _free(folder: Path, path: PurePosixPath, taken: Collection[str]) -> str:
    """A name for the next program, which is no file of the folder and was not given before."""
    names = (str(path.with_stem(f"{path.stem}_{number}") if number > 1 else path) for number in count(1))
    return next(one for one in names if one not in taken and not (folder / one).exists())


def as_coder(spec: RunSpec, wanted: Wanted) -> RunSpec:
    """A run of the coder, checked as is wanted."""
    bot = CODER.model_copy(update={"bot": CoderBot(wanted)})
    return spec.model_copy(update={"objects": Objects(bot=bot)})


def make_wanted(own: Mapping[str, Any]) -> Wanted:
    """From the coder's own flags. UsageError names the one that is wrong."""
    return Wanted(
        tests=_read_tests(own["tests"]) if "tests" in own else "",
        examples=tuple(own.get("example", ())),
        plan=make_plan(own),
        output=_name(own.get("output", SOLUTION)),
        attempt_s=_seconds(own),
        stdin=_stdin(own.get("stdin", "")),
    )


def _seconds(own: Mapping[str, Any]) -> float:
    seconds = float(own.get("attempt_timeout", 10.0))
    if not 0 < seconds <= 3600:
        raise UsageError(f"--attempt-timeout {seconds:g}: it must be between 0 and 3600 seconds")
    return seconds


def make_plan(own: Mapping[str, Any]) -> Plan:
    try:
        return Plan(**{name: own[name] for name in ("repairs", "fresh_starts") if name in own})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise UsageError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}") from None


def _name(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in text:
        raise UsageError(f"--output {text!r} is not a name inside the folder", f"write {SOLUTION}, or src/{SOLUTION}")
    return text


def _stdin(text: str) -> str:
    return _read("--stdin", text[1:]) if text.startswith("@") else f"{text}\n" if text else ""


def _read_tests(name: str) -> str:
    text = _read("--tests", name)
    if not text.strip():
        raise UsageError(f"--tests {name}: the tests are empty")
    return text


def _read(flag: str, name: str) -> str:
    try:
        return read_regular(Path(name), MAX_TESTS_BYTES).decode()
    except OSError as error:
        raise UsageError(f"{flag} {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{flag} {name} is not UTF-8 text") from None
