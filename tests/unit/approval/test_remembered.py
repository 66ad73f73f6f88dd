"""The file of what is always allowed: taken for hostile, never lost by reading it, taken back by number."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.approval.line import Command, NotPlainError, read
from stockade.approval.remembered import MAX_FILE_BYTES, ApprovalFile, Remembered
from stockade.core.errors import UsageError

PLACE = ("/home/me/a:overlay",)
GOOD = {"place": list(PLACE), "bot": "writing", "words": ["ls"], "text": "ls", "writes": [], "at": 1.5}


def commands_of(line: str) -> tuple[Command, ...]:
    try:
        return read(line)
    except NotPlainError:
        return (Command((), line),)


def allowed(file: ApprovalFile, line: str) -> bool:
    return all(map(Remembered(file, PLACE, "writing").allows, commands_of(line)))


def grant(file: ApprovalFile, *lines: str) -> None:
    for line in lines:
        Remembered(file, PLACE, "writing").add(commands_of(line), "always", 1.5)


def made(tmp_path: Path, data: bytes) -> ApprovalFile:
    path = tmp_path / "approvals.jsonl"
    path.write_bytes(data)
    path.chmod(0o600)
    return ApprovalFile(path)


def line(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


@pytest.mark.parametrize(
    "bad",
    [
        b"0" * 64 + b"  ls",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"\0" * 100,
        b"[" * 100_000,
        line(bot=""),
        line(bot=None),
        line(place="/home/me/a:overlay"),
        line(words="ls"),
        line(words=[1]),
        line(at="1.5"),
        line(at=True),
        line(more=1),
        line(text="x" * 100_001),
        json.dumps({key: GOOD[key] for key in GOOD if key != "place"}).encode(),
    ],
    ids=range(17),
)
def test_a_line_that_is_no_approval_allows_nothing_and_is_named(tmp_path: Path, bad: bytes) -> None:
    file = made(tmp_path, line() + b"\n" + bad + b"\n" + line(words=["pwd"], text="pwd") + b"\n")
    assert allowed(file, "ls")
    assert allowed(file, "pwd")
    (problem,) = file.read().problems
    assert problem.startswith(f"{file.path}, line 2, allows nothing: ")


def test_what_is_shown_is_what_is_allowed(tmp_path: Path) -> None:
    file = made(tmp_path, line(words=["rm", "-rf", "."], text="ls") + b"\n" + line(text="rm -rf .") + b"\n")
    assert allowed(file, "ls")
    assert allowed(file, "rm -rf .")
    assert not allowed(made(tmp_path, line(words=["@write_file"], text="rm -rf .") + b"\n"), "rm -rf .")


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    file = made(tmp_path, line()[:-5])
    grant(file, "pwd")
    assert allowed(file, "pwd")
    assert not allowed(file, "ls")
    assert len(file.read().problems) == 1


@given(st.text(st.characters(exclude_categories=[]), max_size=200))
def test_any_command_can_be_written_down(command: str) -> None:
    path = Path(os.environ["XDG_STATE_HOME"]) / "approvals.jsonl"
    file = ApprovalFile(path)
    grant(file, command)
    assert allowed(file, command)
    assert not file.read().problems
    file.clear()


def test_it_is_the_users_own_file(tmp_path: Path) -> None:
    file = ApprovalFile(tmp_path / "state" / "approvals.jsonl")
    grant(file, "ls", "pwd")
    assert file.path.stat().st_mode & 0o777 == 0o600
    file.path.chmod(0o666)
    with pytest.raises(UsageError, match="can be written by others"):
        file.read()


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "large"])
def test_what_is_no_such_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "approvals.jsonl"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case _:
            path.touch(0o600)
            os.truncate(path, MAX_FILE_BYTES + 1)
    with pytest.raises(UsageError, match=str(path)):
        ApprovalFile(path).read()
    with pytest.raises(UsageError, match=str(path)):
        grant(ApprovalFile(path), "ls")


def test_one_is_taken_back_by_its_number(tmp_path: Path) -> None:
    file = ApprovalFile(tmp_path / "approvals.jsonl")
    grant(file, "ls", "pwd", "date")
    assert [one.text for one in file.remove([3, 1, 3])] == ["ls", "date"]
    assert [one.text for one in file.read().approvals] == ["pwd"]
    assert not allowed(file, "ls")
    with pytest.raises(UsageError, match="there is no approval 2"):
        file.remove([1, 2])
    assert allowed(file, "pwd")
    file.clear()
    assert not file.read().approvals
