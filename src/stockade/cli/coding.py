"""What `stockade code` does: one task like any run, or a service that answers one after the other."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
from pydantic import ValidationError

from stockade import assemble
from stockade.assemble_coder import MAX_TESTS_BYTES, SOLUTION, Plan, Wanted, prepare
from stockade.cli.run import carry_out
from stockade.cli.task import read_task
from stockade.core.errors import UsageError
from stockade.settings import load

OWN = ("tests", "example", "candidates", "repairs", "fresh_starts", "attempt_timeout", "output", "serve")


def begin(task: str | None, given: Mapping[str, Any]) -> int:
    """The exit status. UsageError for flags that make no sense together."""
    own = {name: given[name] for name in OWN if name in given}
    rest = {name: value for name, value in given.items() if name not in OWN}
    if "serve" in own:
        if task is not None:
            raise UsageError("--serve takes its tasks over HTTP", "leave TASK out")
        raise UsageError("--serve is not there yet")
    if task is None:
        raise UsageError("there is no task", "stockade code TASK, or - for standard input")
    words = read_task(task)
    settings = load({**rest, "task": words})
    wanted = make_wanted(words, own)
    wanted.job()  # what is wrong with the checks is said before anything starts
    store = assemble.open_store(settings.options.store)
    try:
        return carry_out(settings, store, partial(prepare, wanted, settings.options, store))
    finally:
        anyio.run(store.close)


def make_wanted(task: str, own: Mapping[str, Any]) -> Wanted:
    """From the coder's own flags. UsageError names the one that is wrong."""
    seconds = own.get("attempt_timeout", 10.0)
    if not 0 < seconds <= 3600:
        raise UsageError(f"--attempt-timeout {seconds:g}: it must be between 0 and 3600 seconds")
    return Wanted(
        task=task,
        tests=_read_tests(own["tests"]) if "tests" in own else "",
        examples=tuple(own.get("example", ())),
        plan=make_plan(own),
        output=_name(own.get("output", SOLUTION)),
        attempt_s=seconds,
    )


def make_plan(own: Mapping[str, Any]) -> Plan:
    try:
        return Plan(**{name: own[name] for name in ("candidates", "repairs", "fresh_starts") if name in own})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise UsageError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}") from None


def _name(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in text:
        raise UsageError(f"--output {text!r} is not a name inside the folder", f"write {SOLUTION}, or src/{SOLUTION}")
    return text


def _read_tests(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_TESTS_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"--tests {name}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"--tests {name} is not UTF-8 text") from None
