"""The table of docs/record.md, row by row: what of a bot's files comes to the folder, and what a layer cannot keep."""

import os
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.sandboxes.test_folders.conftest import MakeBench
from tests.unit.sandboxes.test_folders.helpers import Bench

PAGE = Path(__file__).parents[4] / "docs" / "record.md"
ACL = "system.posix_acl_access"
ODD = (b"-x", b"new\nline", b"not-\xff-utf8", b"n" * 255, b'quo"ted \\ tab\t')
SET = '/usr/bin/python3 -c \'import os; os.setxattr("{}", "{}", bytes.fromhex("{}"))\''


def acl(user: int) -> bytes:
    """rw for the owner, and for one further user (linux/posix_acl_xattr.h)."""
    entries = ((1, 6, 0xFFFFFFFF), (2, 6, user), (4, 4, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 4, 0xFFFFFFFF))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def spelled(names: tuple[bytes, ...]) -> str:
    return " ".join("./$'" + "".join(f"\\x{byte:02x}" for byte in name) + "'" for name in names)


@dataclass(frozen=True)
class Row:
    """`before` makes the folder and `bot` is run in the layer; `after` looks at the folder when that is applied, and
    `undone` when it is taken back.
    """

    bot: str
    after: Callable[[Path], bool]
    before: Callable[[Path], None] = lambda _: None
    undone: Callable[[Path], bool] = lambda _: True


def put(folder: Path, *names: str, text: str = "old\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names(folder: Path) -> set[bytes]:
    return set(os.listdir(os.fsencode(folder)))


def two_names(folder: Path) -> None:
    put(folder, "twin")
    os.link(folder / "twin", folder / "other")


def of_a_folder(folder: Path) -> None:
    put(folder, "file", "folder/in")


def group(folder: Path) -> None:
    put(folder, "x", "other")
    for name in ("x", "other"):
        os.chown(folder / name, -1, 1235)


def of_a_group(folder: Path) -> bool:
    """As the file beside it, which nobody touched."""
    return (folder / "x").stat().st_gid == (folder / "other").stat().st_gid != 0


def closed(folder: Path) -> None:
    put(folder, "closed/x")
    (folder / "closed").chmod(0o555)


def marked(folder: Path) -> None:
    put(folder, "noted", "shared")
    os.setxattr(folder / "noted", "user.note", b"host")
    os.setxattr(folder / "shared", ACL, acl(1234))


def loops(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "self").symlink_to(".")


def old_times(folder: Path) -> None:
    put(folder, "x")
    os.utime(folder / "x", (1000, 1000))


ROWS = {
    "content, permission bits, a symlink's target": Row(
        "echo new >> x; chmod 750 x; ln -s x link",
        lambda at: (at / "x").read_text() == "old\nnew\n" and mode(at / "x") == 0o750 and (at / "link").is_symlink(),
        lambda at: put(at, "x"),
        lambda at: (at / "x").read_text() == "old\n" and names(at) == {b"x"},
    ),
    "names of any bytes": Row(
        f"for name in {spelled(ODD)}; do echo x > \"$name\"; done",
        lambda at: names(at) == set(ODD),
        undone=lambda at: names(at) == set(),
    ),
    "renames that change only case": Row(
        "mv Readme README",
        lambda at: names(at) == {b"README"},
        lambda at: put(at, "Readme"),
        lambda at: names(at) == {b"Readme"},
    ),
    "a file that became a folder, a folder that became a file": Row(
        "rm file; mkdir file; echo y > file/y; rm -r folder; echo f > folder",
        lambda at: (at / "file" / "y").read_text() == "y\n" and (at / "folder").read_text() == "f\n",
        of_a_folder,
        lambda at: (at / "file").read_text() == "old\n" and (at / "folder" / "in").read_text() == "old\n",
    ),
    "symlinks that lead in a circle": Row(
        "ln -sfn self self; ln -s a c",
        lambda at: os.readlink(at / "self") == "self" and os.readlink(at / "c") == "a",
        loops,
        lambda at: os.readlink(at / "self") == "." and names(at) == {b"a", b"b", b"self"},
    ),
    "what is in a folder that cannot be written": Row(
        "chmod u+w closed; echo new > closed/x; chmod u-w closed",
        lambda at: (at / "closed" / "x").read_text() == "new\n" and mode(at / "closed") == 0o555,
        closed,
        lambda at: (at / "closed" / "x").read_text() == "old\n" and mode(at / "closed") == 0o555,
    ),
    "empty folders, holes of sparse files": Row(
        "mkdir empty; truncate -s 8M sparse",
        lambda at: (at / "empty").is_dir() and (at / "sparse").stat().st_blocks == 0,
        undone=lambda at: names(at) == set(),
    ),
    "owner and group": Row(
        "cat x > t; rm x; mv t x; echo y > y",
        lambda at: of_a_group(at) and (at / "y").stat().st_uid == at.stat().st_uid,
        group,
        of_a_group,
    ),
    "extended attributes, access control lists": Row(
        f"echo new >> noted; echo new >> shared; echo n > made; {SET.format('noted', 'user.bot', '62')}; "
        f"{SET.format('made', 'user.bot', '62')}; {SET.format('made', ACL, acl(4321).hex())}",
        lambda at: (os.listxattr(at / "noted"), os.listxattr(at / "made")) == (["user.note"], [])
        and os.getxattr(at / "shared", ACL) == acl(1234),
        marked,
        lambda at: os.getxattr(at / "shared", ACL) == acl(1234) and os.listxattr(at / "noted") == ["user.note"],
    ),
    "times": Row(
        "echo new >> x; touch -d @2000 x",
        lambda at: (at / "x").stat().st_mtime > 2000,
        old_times,
        lambda at: (at / "x").stat().st_mtime == 1000,
    ),
    "hard links": Row(
        "echo new >> twin; cat other > seen; echo n > one; ln one two",
        lambda at: (at / "twin").read_text() == "old\nnew\n"
        and (at / "other").read_text() == (at / "seen").read_text() == "old\n"
        and not any((at / name).stat().st_nlink > 1 for name in ("twin", "one", "two")),
        two_names,
        lambda at: (at / "twin").stat().st_ino == (at / "other").stat().st_ino,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ROWS)
def test_it_is_as_the_page_says(bench: Bench, what: str) -> None:
    row = ROWS[what]
    row.before(bench.host)
    bench.begin()
    bench.bash(row.bot)
    bench.apply()
    assert row.after(bench.host)
    bench.review.undo(bench.layer)
    assert row.undone(bench.host)


REFUSED = {
    "set-uid and set-gid programs": "cp /bin/true x; chmod u+s x",
    "sockets": "/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"x\")'",
    "pipes": "mkfifo x",
    "devices": "mknod x c 1 3",
    "symlinks out of the folder": "ln -s ../../etc/passwd x",
}


@pytest.mark.parametrize(
    ("how", "what"),
    [(how, what) for how in ("root", "user", "copy") for what in REFUSED if (how, what) != ("user", "devices")],
)
def test_it_is_refused_by_name(make_bench: MakeBench, how: str, what: str) -> None:
    bench = make_bench(how)
    bench.begin()
    bench.bash(REFUSED[what])
    (change,) = bench.changes()
    assert (change.path, bool(change.refused)) == ("x", True)


def test_the_page_has_these_rows_and_no_others() -> None:
    table = PAGE.read_text().partition("## What apply keeps\n")[2].partition("\n## ")[0].splitlines()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table if line.startswith("| ")]
    assert rows[1:] == [*ROWS, ", ".join(REFUSED)]
