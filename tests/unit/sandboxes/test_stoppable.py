"""Copying that nobody waits for any more ends between two files, or inside a large one, and leaves nothing."""

import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from stockade.core.errors import UsageError
from stockade_sandbox.backends.copies import copy_in
from stockade_sandbox.backends.layers import copied_layers
from stockade_sandbox.policy import CopyRule, FolderRule, Policy
from stockade_sandbox.stoppable import Progress, quietly, stoppable


class _Gate:
    """Stands still in the first report of which `at` is true, until it is opened."""

    def __init__(self, at: Callable[[int], bool]) -> None:
        self.reached, self._open, self._at = anyio.Event(), threading.Event(), at
        self.after = 0

    def around(self, report: Progress) -> Progress:
        def gated(what: str, done: int, total: int) -> None:
            if self._open.is_set():
                self.after += 1
            elif self._at(done):
                anyio.from_thread.run_sync(self.reached.set)
                self._open.wait()
            report(what, done, total)

        return gated

    def open(self) -> None:
        self._open.set()


async def _cancel_in(work: Callable[[Progress], object], gate: _Gate) -> None:
    """Starts `work`, cancels it where the gate stands, and waits for its end."""
    async with anyio.create_task_group() as group:
        group.start_soon(stoppable, lambda report: work(gate.around(report)))
        await gate.reached.wait()
        group.cancel_scope.cancel()
        gate.open()


def _folder(path: Path, files: int) -> Path:
    path.mkdir(parents=True)
    for number in range(files):
        (path / f"{number:03}").write_bytes(b"x" * 5000)
    return path


def test_a_cancelled_layer_is_gone_with_those_before_it(tmp_path: Path) -> None:
    one, two = _folder(tmp_path / "one", 3), _folder(tmp_path / "two", 40)
    policy = Policy(folders=(FolderRule(host=str(one), inside="/one"), FolderRule(host=str(two), inside="/two")))
    base = tmp_path / "base"
    gate = _Gate(lambda done: done > 10 * 5000)
    anyio.run(_cancel_in, lambda report: copied_layers(policy, base, report), gate)
    assert list(base.iterdir()) == []
    assert gate.after == 0


def test_a_large_file_is_not_waited_for(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "large").write_bytes(b"x" * (200 << 20))
    policy, base = Policy(folders=(FolderRule(host=str(source)),)), tmp_path / "base"
    gate = _Gate(lambda done: 0 < done < 200 << 20)
    anyio.run(_cancel_in, lambda report: copied_layers(policy, base, report), gate)
    assert list(base.iterdir()) == []


def test_copies_are_ended_between_files(tmp_path: Path) -> None:
    source, base = _folder(tmp_path / "in", 50), tmp_path / "base"
    base.mkdir()
    gate = _Gate(lambda done: done >= 5 * 5000)
    rule = CopyRule(host=str(source), inside="/in")
    anyio.run(_cancel_in, lambda report: copy_in((rule,), base, None, 0, report), gate)
    assert 0 < len(list((base / "0").iterdir())) < 10


def test_what_it_gives_and_raises_comes_through() -> None:
    async def both() -> None:
        assert await stoppable(lambda _: 7) == 7

        def refuse(_: Progress) -> None:
            raise UsageError("no")

        with pytest.raises(UsageError, match="no"):
            await stoppable(refuse)

    anyio.run(both)


def test_what_is_cancelled_before_it_began_does_not_begin() -> None:
    began = []

    async def main() -> None:
        with anyio.move_on_after(0):
            await stoppable(lambda _: began.append(1))

    anyio.run(main)
    assert not began


def test_progress_is_told_in_the_event_loop_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade_sandbox.stoppable._LONG_S", 0.0)
    seen: list[tuple[str, int, int, bool]] = []

    async def main() -> None:
        loop_thread = threading.current_thread()

        def told(what: str, done: int, total: int) -> None:
            seen.append((what, done, total, threading.current_thread() is loop_thread))

        await stoppable(lambda report: report("copying", 1, 2), told)

    anyio.run(main)
    assert seen == [("copying", 1, 2, True)]
    quietly("nothing", 0, 0)
