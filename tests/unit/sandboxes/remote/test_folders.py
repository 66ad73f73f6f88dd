"""A folder as a tar: nothing that is in one is written beside its place, and nothing odd is lost on the way."""

import io
import os
import tarfile
from pathlib import Path
from typing import BinaryIO

import pytest

from stockade_sandbox.backends.remote import folders
from stockade_sandbox.backends.remote.folders import Entry, Taking, piped, whole, write_tar
from stockade_sandbox.errors import ActionFailed, UsageError
from stockade_sandbox.overlay.safe_fs import DirTree
from stockade_sandbox.overlay.store import Kept
from stockade_sandbox.server.folders import seen
from tests.unit.sandboxes.remote.helpers import until

Member = tuple[str, bytes, str]
"""Name, type and the target of a link."""


def tar_of(*members: Member, end: bool = True) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, target, 0o755
            info.size = 3 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(b"abc"))
        length = tar.offset
    return io.BytesIO(out.getvalue() if end else out.getvalue()[:length])


REG, DIR, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("../out", REG, "")], [("/out", REG, "")], [("a/../../out", REG, "")], [("./a", REG, "")], [("", DIR, "")],
        [("up", LINK, ".."), ("up/out", REG, "")], [("etc", LINK, "/etc"), ("etc/out", REG, "")],
        [("a", REG, ""), ("a/b", REG, "")], [("none/b", REG, "")], [("a", REG, ""), ("b", HARD, "a")],
        [("h", HARD, "/etc/passwd")], [("null", tarfile.CHRTYPE, "")], [("disk", tarfile.BLKTYPE, "")],
        [("n" * 300, REG, "")], [("/".join(["d"] * 200), DIR, "")], [("sparse", tarfile.GNUTYPE_SPARSE, "")],
        [("l", LINK, "")],
    ],
)  # fmt: skip
def test_what_is_no_honest_folder_is_refused_and_nothing_is_beside_it(tmp_path: Path, members: list[Member]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(UsageError, match=r"sent as a folder|archive"):
        Taking(root).take(tar_of(*members))
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    assert not Path("/etc/out").exists()


@pytest.mark.parametrize("junk", [b"", b"no tar", os.urandom(2000), bytes(512) + b"x" * 512])
def test_what_is_no_tar_is_refused(tmp_path: Path, junk: bytes) -> None:
    if junk.startswith(bytes(512)):  # an empty one, and something behind its end
        Taking(tmp_path).take(io.BytesIO(junk))
        assert not list(tmp_path.iterdir())
        return
    with pytest.raises(UsageError, match="no tar"):
        Taking(tmp_path).take(io.BytesIO(junk))


def test_one_that_breaks_off_is_refused_wherever_it_does(tmp_path: Path) -> None:
    data = tar_of(("a", REG, ""), ("b", REG, ""), end=False).getvalue()
    for length in range(1, len(data) + 1, 64):
        (root := tmp_path / str(length)).mkdir()
        with pytest.raises(UsageError, match=r"broke off|no tar"):
            Taking(root).take(io.BytesIO(data[:length]))


@pytest.mark.parametrize("bound", ["MAX_ENTRIES", "MAX_BYTES"])
def test_more_than_goes_between_machines_is_refused_at_both_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    tar = tar_of(*[(f"f{number}", REG, "") for number in range(5)])
    monkeypatch.setattr(folders, bound, 4)
    with pytest.raises(ActionFailed, match="more than goes"):
        Taking(tmp_path).take(tar)
    for number in range(5):
        (tmp_path / f"f{number}").write_text("abc")
    with DirTree(tmp_path) as tree, pytest.raises(ActionFailed, match="more than goes"):
        write_tar(whole(tree), io.BytesIO())


def test_odd_names_modes_times_links_and_holes_arrive(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    names: list[str | bytes] = [b"n\xff\n", b"\xef\x9e\x80", b" .wh.x", "ü" * 100, b"a" * 255, b"=", b" trailing "]
    for name in names:
        Path(os.fsdecode(b"/".join([os.fsencode(source), b"in", os.fsencode(name)]))).mkdir(parents=True)
    (source / "closed").mkdir()
    (source / "closed/file").write_bytes(b"x")
    with (source / "hole").open("wb") as file:
        file.truncate(50_000_000)
        file.seek(30_000_000)
        file.write(b"data")
    (source / "link").symlink_to("in/\udcff")
    os.utime(source / "hole", ns=(0, 1_700_000_000_123_456_789))
    (source / "hole").chmod(0o4751)
    (source / "closed").chmod(0o500)
    target.mkdir()
    out = io.BytesIO()
    with DirTree(source) as tree:
        write_tar(whole(tree), out)
    out.seek(0)
    Taking(target).take(out)
    for one in source.rglob("*"):
        other, info = target / one.relative_to(source), one.lstat()
        assert other.lstat().st_mtime_ns == info.st_mtime_ns
        assert other.lstat().st_mode & 0o777 == info.st_mode & 0o777
        assert not one.is_symlink() or os.readlink(one) == os.readlink(other)
        assert not one.is_file() or one.read_bytes() == other.read_bytes()
    assert len(list(source.rglob("*"))) == len(list(target.rglob("*")))
    assert not (target / "hole").stat().st_mode & 0o7000
    assert (target / "hole").stat().st_blocks < 20_000
    (source / "closed").chmod(0o700)


def test_changes_go_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/etc")
    out = io.BytesIO()
    kinds = [Entry("tree", "gone"), Entry("none", "gone"), Entry("file", "directory", 0o700), Entry("link", "gone"),
             Entry("link", "directory", 0o711), Entry("link/inner", "symlink", target="../x"),
             Entry("file/pipe", "fifo", 0o600)]  # fmt: skip
    write_tar(kinds, out)
    out.seek(0)
    Taking(tmp_path).take(out)
    found = {str(path.relative_to(tmp_path)): oct(path.lstat().st_mode) for path in tmp_path.rglob("*")}
    assert found == {"file": "0o40700", "file/pipe": "0o10600", "link": "0o40711", "link/inner": "0o120777"}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], "a d d/x d/y f"),
        ([Kept(path="d", kind="whiteout"), Kept(path="f", kind="gone")], "a"),
        ([Kept(path="d", kind="directory"), Kept(path="d/x", kind="whiteout")], "a d d/y f"),
        ([Kept(path="d", kind="directory", marks={"trusted.overlay.opaque": "79"}), Kept(path="d/z", kind="file")],
         "a d d/z f"),
        ([Kept(path="d", kind="file")], "a d f"),
        ([Kept(path="", kind="directory", marks={"trusted.overlay.origin": "00"}),
          Kept(path="d", kind="directory", marks={"user.overlay.opaque": "79"})], "a d d/x d/y f"),
    ],
)  # fmt: skip
def test_what_is_seen_of_a_folder_under_what_was_written(entries: list[Kept], expected: str) -> None:
    found = seen(frozenset(["a", "d", "d/x", "d/y", "f"]), {entry.path: entry for entry in entries})
    assert " ".join(sorted(found)) == expected


@pytest.mark.anyio
async def test_what_fails_while_it_is_sent_is_raised_by_who_reads() -> None:
    def write(out: BinaryIO) -> None:
        out.write(b"x" * 300_000)
        raise ActionFailed("in the thread")

    got: list[int] = []

    async def read() -> None:
        async for piece in piped(write):
            got.append(len(piece))

    with pytest.raises(ActionFailed, match="in the thread"):
        await read()
    assert sum(got) == 300_000


@pytest.mark.anyio
async def test_who_stops_reading_ends_the_thread() -> None:
    ended: list[bool] = []

    def write(out: BinaryIO) -> None:
        try:
            while True:
                out.write(bytes(100_000))
        finally:
            ended.append(True)

    made = piped(write)
    await anext(made)
    await made.aclose()
    await until(lambda: bool(ended))
