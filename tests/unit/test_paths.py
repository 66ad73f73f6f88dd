"""Files that are written whole: with their rights from the first byte on, and on disk at the end."""

import os
import stat
from pathlib import Path

import pytest

from stockade.paths import write_whole


@pytest.mark.parametrize(("private", "rights"), [(True, 0o600), (False, 0o644)])
def test_a_file_is_written_whole(private: bool, rights: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, steps, real = tmp_path / "new" / "file", list[str](), (os.open, os.fsync, Path.replace)

    def opened(*given: object, **more: object) -> int:
        descriptor = real[0](*given, **more)  # type: ignore[arg-type]
        steps.append(f"open {stat.S_IMODE(os.fstat(descriptor).st_mode):o}")
        return descriptor

    def synced(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(f"sync {kind} of {os.fstat(descriptor).st_size}" if kind == "file" else "sync folder")
        real[1](descriptor)

    def renamed(self: Path, target: Path) -> Path:
        steps.append("rename")
        return real[2](self, target)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    umask = os.umask(0o022)
    try:
        write_whole(path, b"\xff\0", private=private)
        folder = stat.S_IMODE(path.parent.stat().st_mode)
    finally:
        os.umask(umask)
    assert steps[:4] == [f"open {rights:o}", "sync file of 2", "rename", f"open {folder:o}"]
    assert steps[4:] == ["sync folder"]
    assert folder == (0o700 if private else 0o755)
    write_whole(path, "ä", private=private)
    assert (path.read_bytes(), os.listdir(path.parent)) == ("ä".encode(), ["file"])
