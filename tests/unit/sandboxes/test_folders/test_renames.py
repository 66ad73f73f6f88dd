"""Renames are those that git finds, and cost no more than is said, whatever a bot writes."""

import random
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from stockade_sandbox.overlay.renames import MOST_PAIRS, File, find_renames
from stockade_sandbox.results import Change
from tests.unit.sandboxes.test_folders.helpers import Bench


def _gits(folder: Path) -> dict[str, tuple[str, int]]:
    """What real git says of the folders `a` and `b`."""
    argv = ["git", "diff", "--no-index", "-M", "--raw", "-z", "a", "b"]
    fields = subprocess.run(argv, cwd=folder, capture_output=True, check=False).stdout.decode().split("\0")
    found, at = {}, 0
    while at < len(fields) - 1:
        status = fields[at].split(" ")[-1]
        if status.startswith("R"):
            old, new = fields[at + 1].removeprefix("a/"), fields[at + 2].removeprefix("b/")
            found[new] = (old, int(status[1:]))
        at += 3 if status[0] in "RC" else 2
    return found


def _ours(folder: Path) -> dict[str, tuple[str, int]]:
    def files(side: str) -> dict[str, File]:
        paths = [path for path in (folder / side).rglob("*") if path.is_file()]
        names = [str(path.relative_to(folder / side)) for path in paths]
        return {name: _file(name, path.read_bytes()) for name, path in zip(names, paths, strict=True)}

    old, new = files("a"), files("b")
    gone = [one for name, one in old.items() if name not in new]
    made = [one for name, one in new.items() if name not in old]
    return {path: (one.old, one.similarity) for path, one in find_renames(gone, made).items()}


def _file(path: str, data: bytes) -> File:
    return File(path, len(data), data.hex, lambda: data)


def test_the_pairs_and_the_percentages_are_gits(tmp_path: Path) -> None:
    chance = random.Random(7)
    for side in "ab":
        (tmp_path / side / "sub").mkdir(parents=True)
    for number in range(40):
        lines = [f"{number} {chance.random()}\n".encode() for _ in range(chance.randrange(4, 60))]
        if number % 7 == 0:
            lines.append(b"x" * chance.randrange(200) + b"\r\n")
        (tmp_path / "a" / f"old{number}").write_bytes(b"".join(lines))
        for _ in range(len(lines) * number // 60):
            lines[chance.randrange(len(lines))] = f"{chance.random()}\n".encode()
        (tmp_path / "b" / "sub" / f"new{number}").write_bytes(b"".join(lines))
    gits = _gits(tmp_path)
    assert 20 < len(gits) < 40
    assert _ours(tmp_path) == gits


def test_equal_files_keep_their_names_where_they_can(tmp_path: Path) -> None:
    for path in ("a/one/x", "a/two/y", "b/three/y", "b/four/x"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("the same\n")
    assert _ours(tmp_path) == _gits(tmp_path) == {"three/y": ("two/y", 100), "four/x": ("one/x", 100)}


def test_what_is_beyond_the_bounds_is_no_rename_and_is_not_read() -> None:
    def never() -> NoReturn:
        raise AssertionError("it was read")

    many = range(int(MOST_PAIRS**0.5) + 1)
    olds = [File(f"o{number}", 1000, never, never) for number in many]
    news = [File(f"n{number}", 999, never, never) for number in many]
    assert find_renames(olds, news) == {}
    large = 1 << 30
    assert find_renames([File("o", large, never, never)], [File("n", large + 1, never, never)]) == {}


@pytest.mark.parametrize("name", ["-x", "new\nline", "not-\udcff-utf8", "n" * 255])
def test_a_rename_is_a_patch_that_git_applies(bench: Bench, tmp_path: Path, name: str) -> None:
    bench.write("sub/old", "".join(f"line {number}\n" for number in range(20)))
    bench.begin()
    quoted = "$'" + "".join(f"\\x{byte:02x}" for byte in name.encode(errors="surrogateescape")) + "'"
    bench.bash(f"mv sub/old ./{quoted}; rmdir sub; sed -i '3s/.*/bot/' ./{quoted}; chmod 755 ./{quoted}")
    changes = bench.changes()
    (renamed,) = bench.review.renames(bench.layer, changes).values()
    assert renamed.old == "sub/old"
    assert 90 <= renamed.similarity < 100
    (new,) = (change for change in changes if change.kind == "added")
    patch = bench.review.unified_diff(bench.layer, new, renamed)
    assert "rename from sub/old\n" in patch
    assert patch.count("\n+") == 2  # the name and the line
    subprocess.run(["cp", "-r", bench.host, tmp_path / "copy"], check=True)
    argv = ["git", "apply", "-"]
    subprocess.run(argv, cwd=tmp_path / "copy", input=patch.encode(errors="surrogateescape"), check=True)
    bench.apply()
    ours, gits = (bench.host / name), (tmp_path / "copy" / name)
    assert ours.read_bytes() == gits.read_bytes()
    assert gits.stat().st_mode & 0o777 == ours.stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "copy" / "sub").exists()


def test_links_and_what_is_refused_are_no_renames(bench: Bench) -> None:
    bench.write("old", "x\n" * 10)
    (bench.host / "link").symlink_to("old")
    bench.begin()
    bench.bash("mv old new; chmod u+s new; mv link other")
    assert bench.review.renames(bench.layer, bench.changes()) == {}
    assert bench.review.renames(bench.layer, [Change(path="x", kind="added")]) == {}
