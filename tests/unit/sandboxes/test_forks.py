"""Snapshots and forks of a sandbox: what was written at one moment, while all stood still."""

import os
from pathlib import Path

import pytest

from stockade_sandbox import Policy, Sandbox
from stockade_sandbox.errors import SandboxDied, UsageError
from stockade_sandbox.policy import FolderRule


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old").write_bytes(os.urandom(8 << 20))
    (tmp_path / "data" / "gone").write_text("there\n")
    return tmp_path / "data"


def size(base: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in base.rglob("*"))


@pytest.mark.parametrize("keep", [False, True], ids=["", "kept"])
def test_a_fork_has_what_was_written_then_and_each_its_own_from_then_on(folder: Path, keep: bool) -> None:
    with Sandbox(folder, keep=keep) as box:
        box.exec(shell="echo one > new; rm gone; ln -s new link; chmod 600 new; mkdir -p a/b")
        taken = box.snapshot()
        box.exec(shell="echo two > new; touch later")
        with box.fork(taken) as then, box.fork() as now, now.fork(keep=keep) as again:
            assert (then.read_file("link"), now.read_file("link"), again.read_file("link")) == (
                b"one\n", b"two\n", b"two\n",
            )  # fmt: skip
            assert then.stat("new").mode == 0o600
            assert [one.exists("gone") for one in (then, now, again)] == [False] * 3
            assert [one.exists("later") for one in (then, now, again)] == [False, True, True]
            assert then.stat("a/b").kind == "directory"
            then.write_file("only", "there")
            assert [one.exists("only") for one in (box, now, again)] == [False] * 3
            assert "only" in then.diff()
            assert size(then.base) < 1 << 20 < 8 << 20 <= size(folder)
            again.destroy()
        box.destroy()
    assert (folder / "gone").exists()
    assert list((folder.parent / "state/stockade/boxes").iterdir()) == []


def test_what_a_fork_wrote_is_applied_and_undone(folder: Path) -> None:
    with Sandbox(folder) as box:
        box.write_file("new", "box")
        with box.fork() as other:
            other.write_file("new", "other")
            assert other.apply() == ("new",)
        assert (folder / "new").read_text() == "other"
        other.undo()
        assert not (folder / "new").exists()
        assert box.read_file("new") == b"box"


def test_programs_go_on_after_a_snapshot(folder: Path) -> None:
    """Two files that are always written one after the other are never told apart by more than the one under way; a
    program that had been stopped stays so.
    """
    with Sandbox(folder) as box, box.start(shell="while :; do echo x >> a; echo x >> b; done"):
        box.exec(shell="sleep 1000 & kill -STOP $!; echo $! > /tmp/stopped")
        for _ in range(3):
            box.exec(["sh", "-c", "n=$(wc -c < a); until [ $(wc -c < a) -gt $n ]; do :; done"], timeout=60)
            with box.fork() as other:
                first, second = len(other.read_file("a")), len(other.read_file("b"))
                assert first - second in (0, 2), (first, second)
        assert box.exec(shell="cut -d' ' -f3 /proc/$(cat /tmp/stopped)/stat").text == "T\n"


def test_where_there_is_none_it_is_said(folder: Path) -> None:
    policy = Policy(folders=(FolderRule(host=str(folder), mode="rw"),))
    with Sandbox(policy=policy) as box, pytest.raises(UsageError, match="rw has no snapshots"):
        box.snapshot()
    with pytest.raises(SandboxDied):
        box.fork()
