"""Files of a real sandbox by the public calls: bytes and names as they are, Python's own errors, and what a hostile
sandbox sends in place of a folder: each first shown to get out where an archive is believed.
"""

import io
import math
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from stockade_sandbox import Sandbox
from stockade_sandbox.errors import ActionFailed
from stockade_sandbox.files import unpack


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    place = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(place / "state"))
        (place / "data").mkdir()
        (place / "data" / "a").write_text("x")
        with Sandbox(folder=place / "data") as found:
            yield found


@pytest.mark.parametrize("size", [0, 1, 100_000, 3 << 20])
@pytest.mark.parametrize("name", ["plain", "-rf", "new\nline\n", "a b'\"$(x)", "deep/er/one", "\udcff"])
def test_bytes_come_back(box: Sandbox, name: str, size: int) -> None:
    data = os.urandom(size)
    box.write_file(name, data)
    assert box.read_file(name) == data
    found = box.stat(name)
    assert (found.kind, found.size) == ("file", size)
    box.remove(name)
    assert not box.exists(name)


def test_a_folder_is_listed_with_whatever_is_in_it(box: Sandbox) -> None:
    assert box.list_dir("/mnt" if box.exists("/mnt") else "/tmp") == ()
    box.make_dir("all/inner", parents=True)
    box.write_file("all/.hidden", "x")
    box.write_file("all/..odd\n", b"four")
    box.exec(shell="(cd all && ln -s nowhere link && mkfifo pipe)")
    found = {one.name: (one.kind, one.size) for one in box.list_dir("all") if one.kind != "directory"}
    assert found == {".hidden": ("file", 1), "..odd\n": ("file", 4), "link": ("symlink", 7), "pipe": ("other", 0)}
    link = box.stat("all/link", follow=False)
    assert (link.kind, link.target) == ("symlink", "nowhere")
    assert not box.exists("all/link")
    box.remove("all", recursive=True)


@pytest.mark.parametrize("room", [0, 1, 29, 4096])
def test_why_it_failed_is_told_in_whatever_room(box: Sandbox, room: int) -> None:
    box.write_file("thirty", "x" * 30)
    with pytest.raises(FileNotFoundError):
        box.read_file("none", max_bytes=room)
    with pytest.raises(IsADirectoryError):
        box.read_file("/etc", max_bytes=room)
    if room < 30:
        with pytest.raises(OSError, match=f"larger than {room} bytes"):
            box.read_file("thirty", max_bytes=room)


@pytest.mark.parametrize("odd", [math.inf, math.nan, 1.5, -1, "x"])
def test_what_is_no_bound_ends_no_sandbox(box: Sandbox, odd: Any) -> None:
    for call in (
        lambda: box.read_file("a", max_bytes=odd), lambda: box.exec(["echo", "x" * 99], max_output=odd),
        lambda: box.exec(["true"], timeout=odd), lambda: box.start(["true"], timeout=odd).__enter__(),
    ):  # fmt: skip
        with suppress(ActionFailed, TypeError, OSError):
            call()
        assert box.exec(["echo", "x" * 99]).exit_code == 0


CALLS: dict[str, Callable[[Sandbox], object]] = {
    "read nothing": lambda box: box.read_file("none"),
    "read no name": lambda box: box.read_file(""),
    "read a NUL": lambda box: box.read_file("a\0b"),
    "stat nothing": lambda box: box.stat("none"),
    "list nothing": lambda box: box.list_dir("none"),
    "remove nothing": lambda box: box.remove("none"),
    "remove nothing whole": lambda box: box.remove("none", recursive=True),
    "make in nothing": lambda box: box.make_dir("none/x"),
    "copy nothing out": lambda box: box.copy_out("none", "/nowhere/x"),
    "read a folder": lambda box: box.read_file("/etc"),
    "write a folder": lambda box: box.write_file("/workspace", b""),
    "read below a file": lambda box: box.read_file("a/b"),
    "list a file": lambda box: box.list_dir("a"),
    "make what is there": lambda box: box.make_dir("a"),
    "make what is there with parents": lambda box: box.make_dir("a", parents=True),
    "write where nobody may": lambda box: box.write_file("/etc/x", b"x" * (1 << 20)),
    "read what is larger": lambda box: box.read_file("/etc/passwd", max_bytes=3),
    "remove what is not empty": lambda box: box.remove("/workspace"),
}
SAYS = {
    "read a folder": (IsADirectoryError, "Is a directory"), "write a folder": (IsADirectoryError, "Is a directory"),
    "read below a file": (NotADirectoryError, "Not a directory"),
    "list a file": (NotADirectoryError, "Not a directory"),
    "make what is there": (FileExistsError, "File exists"),
    "make what is there with parents": (FileExistsError, "File exists"),
    "write where nobody may": (OSError, "Read-only file system"), "read what is larger": (OSError, "larger than 3"),
    "remove what is not empty": (OSError, "Read-only file system"),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_errors_are_those_of_files(box: Sandbox, call: str) -> None:
    kind, words = SAYS.get(call, (FileNotFoundError, "none|no name"))
    with pytest.raises(kind, match=words):
        CALLS[call](box)


def test_nobody_waits_for_the_other_end_of_a_pipe(box: Sandbox) -> None:
    box.exec(shell="mkfifo waits")
    for call in (box.read_file, lambda path: box.write_file(path, b"x")):
        with pytest.raises(OSError, match="Invalid argument"):
            call("waits")
    box.remove("waits")


def test_what_may_not_be_read_is_a_permission(box: Sandbox) -> None:
    box.write_file("closed", b"x")
    box.exec(shell="chmod 0 closed")
    with pytest.raises(PermissionError):
        box.read_file("closed")
    with pytest.raises(PermissionError):
        box.write_file("closed", b"y" * (1 << 20))
    box.remove("closed")


def test_folders_go_in_and_come_out_as_they_are(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "run\n").write_text("#!/bin/sh\n")
    (source / "inner" / "run\n").chmod(0o751)
    (source / "twin").hardlink_to(source / "inner" / "run\n")
    (source / "link").symlink_to("inner")
    (source / "open").write_text("")
    (source / "open").chmod(0o4666)
    os.mkfifo(source / "pipe")
    box.copy_in(source, "in/here")
    assert box.stat("in/here/inner/run\n").mode == 0o751
    assert box.stat("in/here/open").mode == 0o666
    with pytest.raises(OSError, match="neither a file nor a folder"):
        box.copy_in(source / "pipe", "pipe")
    assert box.copy_out("in/here", tmp_path / "back") == ()
    back = tmp_path / "back"
    assert sorted(path.name for path in back.iterdir()) == ["inner", "link", "open", "twin"]
    assert (back / "link").readlink() == Path("inner")
    assert (back / "inner" / "run\n").stat().st_mode & 0o777 == 0o751
    assert (back / "twin").samefile(back / "inner" / "run\n")
    box.copy_in(source / "twin", "one")
    box.copy_out("one", tmp_path / "one")
    assert ((tmp_path / "one").read_text(), (tmp_path / "one").stat().st_mode & 0o777) == ("#!/bin/sh\n", 0o751)
    with pytest.raises(FileExistsError):
        box.copy_out("in/here", back)
    with pytest.raises(OSError, match="larger than"):
        box.copy_out("in/here", tmp_path / "small", max_bytes=100)
    assert not (tmp_path / "small").exists()


def test_links_that_lead_out_stay_inside(box: Sandbox, tmp_path: Path) -> None:
    box.exec(shell="mkdir out && (cd out && ln -s /etc/passwd evil && ln -s ../../x up && ln -s ok fine && : > ok)")
    assert sorted(box.copy_out("out", tmp_path / "out")) == ["evil", "up"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["fine", "ok"]


CHAIN = "mkdir -p chain/a/b && cd chain/a/b && ln -s ../.. up && ln -s up/../secret out && ln -s up/in fine; cd -"
"""Read as words, `out` stays in the folder: what it leads through is not where it seems to be."""


@pytest.mark.parametrize("believed", [True, False])
def test_a_link_through_a_link_leads_out_where_it_is_believed(believed: bool, box: Sandbox, tmp_path: Path) -> None:
    box.exec(shell=CHAIN)
    (tmp_path / "secret").write_text("the host's")
    if believed:
        (tmp_path / "tar").write_bytes(box.exec(["tar", "-cC", "chain", "."], max_output=1 << 20).stdout)
        with tarfile.open(tmp_path / "tar") as packed:
            packed.extractall(tmp_path / "chain", **TRUSTING)
    else:
        assert box.copy_out("chain", tmp_path / "chain") == ("a/b/out",)
    assert (tmp_path / "chain/a/b/out").exists() == believed
    assert (tmp_path / "chain/a/b/fine").readlink() == Path("up/in")
    box.remove("chain", recursive=True)


def test_a_file_of_many_names_fills_the_host_once(box: Sandbox, tmp_path: Path) -> None:
    box.exec(shell="mkdir many && head -c 3000000 /dev/zero > many/0 && for i in $(seq 50); do ln many/0 many/$i; done")
    box.copy_out("many", tmp_path / "many", max_bytes=4 << 20)
    assert {path.stat().st_ino for path in (tmp_path / "many").iterdir()} == {(tmp_path / "many/0").stat().st_ino}
    box.remove("many", recursive=True)


def test_a_sandbox_that_never_ends_what_it_sends_is_a_timeout(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever sends the folder is a process of the bot's user, which it can stop."""
    monkeypatch.setattr("stockade_sandbox.files.FILE_S", 2.0)
    box.exec(shell="mkdir slow && head -c 99000000 /dev/zero > slow/x")
    stop = "[ $(cat $one/comm) != tar ] || kill -STOP ${one#/proc/}"
    stop = f"while sleep 0.01; do for one in /proc/[0-9]*; do {stop}; done; done"
    with box.start(shell=stop), pytest.raises(TimeoutError, match="not done in 2 s"):
        box.copy_out("slow", tmp_path / "slow")
    assert not (tmp_path / "slow").exists()
    box.remove("slow", recursive=True)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size, found.mode = kind, link, size, 0o644
    return found


LEADING_OUT = {
    "by dots": [member("../out", size=3)],
    "by dots in the middle": [member("a/", tarfile.DIRTYPE), member("a/../../out", size=3)],
    "below a link": [member("d", tarfile.SYMTYPE, ".."), member("d/out", size=3)],
    "over a link": [member("f", tarfile.SYMTYPE, "../out"), member("f", size=3)],
}


TRUSTING: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
"""As every Python before 3.11.4 does."""


def archive(members: list[tarfile.TarInfo], target: Path) -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as out:
        for one in members:
            out.addfile(one, io.BytesIO(b"bad") if one.size else None)
    data.seek(0)
    return data


@pytest.mark.parametrize("way", LEADING_OUT)
def test_who_believes_an_archive_writes_outside(way: str, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with tarfile.open(fileobj=archive(LEADING_OUT[way], tmp_path)) as packed:
        packed.extractall(tmp_path / "target", **TRUSTING)
    assert (tmp_path / "out").read_bytes() == b"bad"


@pytest.mark.parametrize("way", LEADING_OUT)
def test_an_archive_writes_nothing_outside(way: str, tmp_path: Path) -> None:
    try:
        left = unpack(archive(LEADING_OUT[way], tmp_path), tmp_path / "target", 1 << 20)
    except ActionFailed:
        left = ()
    assert [path.name for path in tmp_path.iterdir()] in ([], ["target"]), left


def test_an_archive_that_is_none_or_has_devices_or_is_larger_than_it_looks(tmp_path: Path) -> None:
    with pytest.raises(ActionFailed):
        unpack(io.BytesIO(os.urandom(5000)), tmp_path / "noise", 1 << 20)
    devices = [
        member("dev", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
        member("hard", tarfile.LNKTYPE, "/etc/passwd"),
    ]
    with pytest.raises(ActionFailed):
        unpack(archive(devices, tmp_path), tmp_path / "devices", 1 << 20)
    assert unpack(archive(devices[:2], tmp_path), tmp_path / "two", 1 << 20) == ("dev", "pipe")
    sparse = b"".join((
        member("big", tarfile.GNUTYPE_SPARSE, size=0).tobuf(tarfile.GNU_FORMAT)[:386],
        b"0" * 11 + b"\0" + b"0" * 11 + b"\0" + b"\0" * 72 + b"\0" + b"77777777777\0" + b"\0" * 17,
    ))  # fmt: skip
    head = bytearray(sparse[:512].ljust(512, b"\0"))
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    with pytest.raises((ActionFailed, OSError)):
        unpack(io.BytesIO(bytes(head) + b"\0" * 1024), tmp_path / "sparse", 1 << 20)
    assert sum(path.stat().st_blocks for path in tmp_path.rglob("*")) < 100


def headers(*members: tarfile.TarInfo) -> io.BytesIO:
    """As they are, without what belongs to them."""
    return io.BytesIO(b"".join(one.tobuf(tarfile.GNU_FORMAT) for one in members) + b"\0" * 1024)


BACK = [member("x"), member("y"), member("Z", b"Z", size=-1024)]
LONG = member("long", tarfile.GNUTYPE_LONGNAME, size=200 << 20)
NESTED = [member("long", tarfile.GNUTYPE_LONGNAME) for _ in range(5000)]
LOOP = [member("s", tarfile.SYMTYPE, "s"), member("h", tarfile.LNKTYPE, "s")]


def test_who_believes_headers_is_led_astray() -> None:
    with tarfile.open(fileobj=headers(*BACK)) as packed:
        names = [one.name for one in (packed.next() for _ in range(7)) if one]
        assert names in (["x", "y", "Z", "y", "Z", "y", "Z"], ["x", "y"])  # for ever; a newer Python ends it there
    with pytest.raises(RecursionError), tarfile.open(fileobj=headers(*NESTED)) as packed:
        packed.next()
    with pytest.raises((RecursionError, KeyError)), tarfile.open(fileobj=headers(*LOOP)) as packed:
        packed.extractfile("h")
    asked = list[int]()

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            asked.append(size or 0)
            return super().read(size)

    with pytest.raises(tarfile.TarError), tarfile.open(fileobj=Watched(headers(LONG).getvalue())) as packed:
        packed.next()
    assert max(asked) in (LONG.size, 1 << 20)  # all of it at once, or piece by piece in a newer Python


def test_a_header_that_leads_back_is_refused_or_ends_it(tmp_path: Path) -> None:
    with tarfile.open(fileobj=headers(*BACK)) as packed:
        leads_back = len([one for one in (packed.next() for _ in range(7)) if one]) == 7
    with pytest.raises(ActionFailed) if leads_back else nullcontext():
        unpack(headers(*BACK), tmp_path / "target", 1 << 20)
    left = {path.name for path in (tmp_path / "target").glob("*")}
    assert left == (set() if leads_back else {"x", "y"})


@pytest.mark.parametrize("sent", [NESTED, LOOP, [LONG]])
def test_headers_that_lead_astray_are_refused(sent: list[tarfile.TarInfo], tmp_path: Path) -> None:
    with pytest.raises(ActionFailed):
        unpack(headers(*sent), tmp_path / "target", 1 << 20)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["gz", "bz2", "xz"])
def test_what_is_packed_smaller_is_no_archive(form: str, tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=f"w:{form}") as out:  # type: ignore[call-overload]
        out.addfile(member("zeros", size=1 << 20), io.BytesIO(bytes(1 << 20)))
    data.seek(0)
    with pytest.raises(ActionFailed):
        unpack(data, tmp_path / "target", 1 << 30)


def test_what_has_no_bytes_counts_too(tmp_path: Path) -> None:
    """A million empty files are a bomb, and so is a folder a million deep."""
    empty = [member(f"f{number}") for number in range(20)]
    assert unpack(headers(*empty), tmp_path / "few", 20 * 4096) == ()
    assert len(list((tmp_path / "few").iterdir())) == 20
    with pytest.raises(OSError, match="larger than"):
        unpack(headers(*empty), tmp_path / "many", 20 * 4096 - 1)
    with pytest.raises(ActionFailed, match="257 parts"):
        unpack(headers(member("/".join("d" * 257))), tmp_path / "deep", 1 << 30)
    assert not (tmp_path / "many").exists()
    assert not (tmp_path / "deep").exists()
