"""Compiled code: kept by what it was made from, ours alone, never taken from elsewhere."""

import os
from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.plugins.wasm import prepare
from stockade.plugins.wasm.policy import Limits


def _put(where: Path, data: str = "x") -> prepare.Entry:
    place = prepare.entry(data, Limits(), where)
    prepare.put(place, b"native code", '{"functions": []}')
    return place


def test_what_was_put_is_found_again_and_private(tmp_path: Path) -> None:
    where = tmp_path / "cache"
    assert prepare.entry("x", Limits(), where).description() is None
    place = _put(where)
    assert place.description() == '{"functions": []}'
    assert place.compiled.read_bytes() == b"native code"
    assert not where.stat().st_mode & 0o077
    for path in (place.folder, place.compiled):
        assert not path.stat().st_mode & 0o022


def test_the_place_depends_on_all_that_code_depends_on(tmp_path: Path) -> None:
    places = {
        prepare.entry("x", Limits(), tmp_path).folder,
        prepare.entry("y", Limits(), tmp_path).folder,
        prepare.entry("x", Limits(fuel=5), tmp_path).folder,
        prepare.entry("x", Limits(stack_bytes=1 << 17), tmp_path).folder,
    }
    assert len(places) == 4
    same = prepare.entry("x", Limits(timeout_s=3, memory_bytes=1 << 20), tmp_path).folder
    assert same in places


@pytest.mark.parametrize("which", ["", "component.cwasm", "description.json"])
def test_what_others_may_write_to_is_not_used(tmp_path: Path, which: str) -> None:
    place = _put(tmp_path / "cache")
    (place.folder / which).chmod(0o777)
    with pytest.raises(UsageError, match="not ours alone"):
        place.description()


def test_a_link_is_not_used(tmp_path: Path) -> None:
    place = _put(tmp_path / "cache")
    planted = tmp_path / "planted"
    planted.write_bytes(b"evil")
    place.compiled.unlink()
    place.compiled.symlink_to(planted)
    with pytest.raises(UsageError, match="not ours alone"):
        place.description()


def test_what_belongs_to_another_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = _put(tmp_path / "cache")
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(UsageError, match="not ours alone"):
        place.description()


def test_the_longest_unused_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "cache"
    first = _put(where, "1")
    second = _put(where, "2")
    os.utime(first.folder, (1, 1))
    monkeypatch.setattr(prepare, "MAX_TOTAL_BYTES", 60)
    third = _put(where, "3")
    assert first.description() is None
    assert (second.description(), third.description()) != (None, None)
    assert not list(where.glob(".new-*"))


def test_two_at_once_leave_one_whole_entry(tmp_path: Path) -> None:
    where = tmp_path / "cache"
    place = _put(where)
    prepare.put(place, b"native code", '{"functions": []}')
    assert place.description() is not None
    assert [path.name for path in where.iterdir()] == [place.folder.name]
