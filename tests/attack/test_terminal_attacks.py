"""On a real terminal: what a bot prints, writes and names is shown, not obeyed; and it cannot type."""

import json
import sys
from pathlib import Path

import pytest

from stockade.testing import say
from tests.attack.attempts.terminal import KEYS, SEQUENCES
from tests.attack.terminal import (
    environment_of,
    piped,
    seen_on_a_terminal,
    shown_by_nobody,
    shown_by_stockade,
    typed_by,
)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return shown_by_nobody(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return shown_by_stockade(tmp_path_factory.mktemp("shown"))


@pytest.mark.parametrize("name", SEQUENCES)
def test_without_care_it_reaches_the_terminal(name: str, raw: bytes) -> None:
    assert SEQUENCES[name] in raw


@pytest.mark.parametrize("name", SEQUENCES)
def test_it_is_shown_and_not_obeyed(name: str, shown: bytes) -> None:
    assert SEQUENCES[name] not in shown


def test_all_of_it_was_there_to_be_shown(shown: bytes) -> None:
    """Spelled out: what ran, what it printed, what was changed, and the answer."""
    assert shown.count(b"\\x1b]0;pwned\\x07") >= 30
    assert b"\\u202e" in shown


def test_a_pipe_gets_every_byte(tmp_path: Path) -> None:
    """The output of a program, the answer of a bot, and a report of the run."""
    every = b"\n".join(SEQUENCES.values())
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    write = f"import sys; sys.stdout.buffer.write({every!r})"
    assert piped(["sandbox", "exec", "--", "/usr/bin/python3", "-c", write], work, home) == every
    (tmp_path / "s.jsonl").write_text(json.dumps({"content": say("finish", answer=every.decode())}))
    run = ["run", "x", "--model", f"scripted/{tmp_path / 's.jsonl'}"]
    assert piped(run, work, home) == every + b"\n"
    assert every in piped(["runs", "export", "last"], work, home)


def test_raw_is_raw(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stockade.cli", "sandbox", "exec", "--raw", "--", "printf", r"\033[2Jq"]
    assert seen_on_a_terminal(command, environment_of(tmp_path), tmp_path) == b"\x1b[2Jq"


@pytest.mark.parametrize("name", KEYS)
def test_without_a_sandbox_it_types(name: str, tmp_path: Path) -> None:
    program, evidence = KEYS[name]
    assert evidence in typed_by(program, tmp_path, sandboxed=False)


@pytest.mark.parametrize("name", KEYS)
def test_a_sandboxed_program_has_no_terminal(name: str, tmp_path: Path) -> None:
    program, evidence = KEYS[name]
    assert evidence not in typed_by(program, tmp_path, sandboxed=True)
