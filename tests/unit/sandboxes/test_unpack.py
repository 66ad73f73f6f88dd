"""Images unpacked: what the specification says, and what a hostile one says."""

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stockade_sandbox.backends import unpack
from stockade_sandbox.backends.in_root import open_in_root
from stockade_sandbox.backends.oci import unpacked
from stockade_sandbox.errors import SandboxFailed, UsageError
from stockade_sandbox.processes import start_time
from stockade_sandbox.stoppable import quietly
from tests.support.oci_images import Layout, entry, layer, link, save

Entry = tuple[tarfile.TarInfo, bytes]


def made(tmp_path: Path, *layers: Sequence[Entry], **settings: Any) -> Path:
    """The root file system of an image of those layers."""
    layout = Layout(tmp_path / "image")
    layout.add(*(layer(*one) for one in layers), **settings)
    return Path(unpacked(f"oci:{layout.folder}", quietly).root)


def files(root: Path) -> dict[str, str]:
    """Of each, what is in it, or where it leads."""
    found = sorted(root.rglob("*"))
    return {str(one.relative_to(root)): f"-> {one.readlink()}" if one.is_symlink() else one.read_text()
            for one in found if one.is_symlink() or one.is_file()}  # fmt: skip


def test_layers_lie_over_each_other(tmp_path: Path) -> None:
    low = [entry("a/"), entry("a/one", b"1"), entry("a/two", b"2"), entry("b/c/deep", b"3"), entry("kept", b"k")]
    high = [entry("a/.wh.one"), entry("a/three", b"4"), entry("./b/.wh..wh..opq"), entry("b/new", b"5"),
            entry("kept/"), entry("kept/now", b"a folder"), entry(".wh..wh.plnk", b"of aufs")]  # fmt: skip
    root = made(tmp_path, low, high)
    assert files(root) == {"a/two": "2", "a/three": "4", "b/new": "5", "kept/now": "a folder"}


def test_a_whiteout_never_hides_what_its_own_layer_brings(tmp_path: Path) -> None:
    low = [entry("d/"), entry("d/old", b"1"), entry("same", b"old")]
    high = [entry("d/new", b"2"), entry("d/.wh..wh..opq"), entry("same", b"new"), entry(".wh.same")]
    assert files(made(tmp_path, low, high)) == {"d/new": "2", "same": "new"}


def test_folders_are_reached_through_links_of_lower_layers(tmp_path: Path) -> None:
    low = [entry("usr/lib/"), link("lib", "usr/lib"), link("abs", "/usr/lib")]
    root = made(tmp_path, low, [entry("lib/x", b"1"), entry("abs/y", b"2"), link("lib/z", "lib/x", tarfile.LNKTYPE)])
    assert files(root) == {"lib": "-> usr/lib", "abs": "-> /usr/lib", "usr/lib/x": "1", "usr/lib/y": "2",
                           "usr/lib/z": "1"}  # fmt: skip
    assert os.stat(root / "usr/lib/z").st_nlink == 2


def test_modes_and_times_are_the_images_but_nothing_is_set_id_or_closed_to_us(tmp_path: Path) -> None:
    entries = [entry("s", mode=0o6755, mtime=1e9), entry("none", mode=0), entry("d/", mode=0o1500), entry("d/f", b"x")]
    root = made(tmp_path, entries)
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("s", "none", "d")}
    assert modes == {"s": 0o755, "none": 0o600, "d": 0o1700}
    assert (root / "s").stat().st_mtime == 1e9
    assert {one.stat().st_uid for one in root.rglob("*")} == {os.geteuid()}


def test_no_device_or_pipe_is_made(tmp_path: Path) -> None:
    kinds = {"null": tarfile.CHRTYPE, "disk": tarfile.BLKTYPE, "pipe": tarfile.FIFOTYPE}
    devices = [entry(name, type=kind, devmajor=0, devminor=0) for name, kind in kinds.items()]
    assert files(made(tmp_path, [*devices, entry("file", b"x")])) == {"file": "x"}


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/../out", "x" * 300, "/".join("d" * 200), "../.wh.victim"])
def test_names_that_lead_out_or_on_and_on_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").write_text("mine")
    with pytest.raises((UsageError, SandboxFailed), match="image"):
        made(tmp_path, [entry("a/")], [entry(name, b"x")])
    assert (tmp_path / "victim").read_text() == "mine"
    assert not [*tmp_path.rglob("out"), *Path(os.environ["XDG_CACHE_HOME"]).rglob("out")]


_RENAMES = """
import os
os.open("a", os.O_CREAT)
print(flush=True)
while True:
    os.rename("a", "b")
    os.rename("b", "a")
"""


def test_renames_beside_it_do_not_end_it(tmp_path: Path) -> None:
    """The kernel gives up on a path with `..` in it while anybody renames anything."""
    (tmp_path / "root").mkdir()
    way = "../" * 40
    root = os.open(tmp_path / "root", os.O_RDONLY)
    with subprocess.Popen([sys.executable, "-c", _RENAMES], cwd=tmp_path, stdout=subprocess.PIPE) as renaming:
        try:
            assert renaming.stdout is not None
            renaming.stdout.readline()
            for _ in range(3000):
                os.close(open_in_root(root, way, os.O_PATH))
        finally:
            renaming.kill()
            os.close(root)


@pytest.mark.parametrize("to", ["OUT", "../../../../../../../../../../../..OUT"])
def test_links_that_lead_out_lead_nowhere(tmp_path: Path, to: str) -> None:
    """A link to a folder of the host, then a file, a whiteout, a folder and a second name by way of it."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    target = to.replace("OUT", str(out))
    low = [link("way", target), entry("own", b"x")]
    through = [entry("way/new", b"x"), entry("way/.wh.mine"), entry("way/.wh..wh..opq"), entry("way/mine", b"other"),
               link("stolen", "way/mine", tarfile.LNKTYPE)]  # fmt: skip
    for number, bad in enumerate(through):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            found = files(made(folder, low, [bad]))
        except UsageError:
            found = {}
        assert "mine" not in found.values()
    assert {one.name: one.read_text() for one in out.iterdir()} == {"mine": "mine"}
    made(tmp_path, low, [entry("way", b"a file now")])
    assert out.is_dir()


def test_a_second_name_of_what_is_out_is_refused(tmp_path: Path) -> None:
    for number, target in enumerate(("../../../../etc/passwd", "/etc/passwd", "etc")):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(UsageError, match="image"):
            made(tmp_path / str(number), [entry("etc/"), link("x", target, tarfile.LNKTYPE)])


def test_what_is_not_what_its_digest_says_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    layout.add(layer(entry("a", b"1")))
    blobs = sorted((layout.folder / "blobs/sha256").iterdir())
    for blob in blobs:
        data = blob.read_bytes()
        blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(UsageError):
            unpacked(f"oci:{layout.folder}", quietly)
        blob.write_bytes(data + b" ")
        with pytest.raises(UsageError, match="is not what it says"):
            unpacked(f"oci:{layout.folder}", quietly)
        blob.unlink()
        blob.symlink_to("/etc/passwd")
        with pytest.raises(UsageError, match="no OCI image"):
            unpacked(f"oci:{layout.folder}", quietly)
        blob.unlink()
        blob.write_bytes(data)
    assert files(Path(unpacked(f"oci:{layout.folder}", quietly).root)) == {"a": "1"}


def test_another_layer_in_a_saved_image_is_refused(tmp_path: Path) -> None:
    good, bad = layer(entry("a", b"1")), layer(entry("a", b"2"))
    file = save(tmp_path / "saved.tar", good)
    file.write_bytes(file.read_bytes().replace(good, bad))
    with pytest.raises(UsageError, match="is not what it says"):
        unpacked(f"docker-archive:{file}", quietly)


def test_what_would_fill_memory_or_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = layer(entry("zeros", bytes(6 << 20)))
    long_name = entry("x", bytes(2 << 20), type=tarfile.XHDTYPE)
    sparse = entry("s", bytes(512), pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                                                 "GNU.sparse.realsize": "9"})  # fmt: skip
    monkeypatch.setattr(unpack, "MAX_BYTES", 1 << 21)
    monkeypatch.setattr(unpack, "MAX_ENTRIES", 3)
    for number, (data, why) in enumerate([
        (zeros, "GiB"), (layer(long_name), "header"), (layer(sparse), "sparse"),
        (layer(*(entry(str(one)) for one in range(4))), "more than 3 files"),
    ]):  # fmt: skip
        layout = Layout(tmp_path / str(number))
        layout.add(data)
        with pytest.raises(UsageError, match=why):
            unpacked(f"oci:{layout.folder}", quietly)
    assert not [one for one in (Path(os.environ["XDG_CACHE_HOME"]) / "stockade/images").iterdir() if one.is_dir()]


@pytest.mark.parametrize(
    "reference", ["oci:nowhere", "docker-archive:nowhere", "oci:", "oci:bad", "docker-archive:bad/index.json",
                  "docker-archive:bad", "NAME@sha256:0", "-x@sha256:" + "0" * 64, "oci:many", "oci:many:c", "oci:zstd",
                  "oci:empty", "oci:foreign", "oci:cut", "oci:nobody", "oci:start", "oci:none"],
)  # fmt: skip
def test_what_is_no_image_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/index.json").write_text("{" * 2000)
    many = Layout(tmp_path / "many")
    many.add(layer(entry("a")), name="a")
    many.add(layer(entry("b")), name="b")
    Layout(tmp_path / "empty").index([])
    zstd = Layout(tmp_path / "zstd")
    zstd.add(b"\x28\xb5\x2f\xfd rest", zipped=False)
    foreign = Layout(tmp_path / "foreign")
    foreign.add(layer(entry("a")))
    foreign.index([{**foreign.manifests[0], "platform": {"architecture": "s390x", "os": "linux"}}])
    cut = Layout(tmp_path / "cut")
    cut.add(gzip.compress(layer(entry("a", os.urandom(9000))))[:-900], zipped=False)
    Layout(tmp_path / "nobody").add(layer(entry("a")), User="nobody-here")
    Layout(tmp_path / "start").add(layer(entry("b")), WorkingDir="../../x")
    none = Layout(tmp_path / "none")
    none.index([none.blob(b'{"manifests": [', "index.v1+json")])
    with pytest.raises(UsageError) as raised:
        unpacked(reference, quietly)
    assert "\n" not in str(raised.value)
    assert raised.value.hint


def test_one_of_several_images_is_named(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "many")
    for name in "ab":
        layout.add(layer(entry(name, name.encode())), name=name)
    assert files(Path(unpacked(f"oci:{layout.folder}:b", quietly).root)) == {"b": "b"}


def test_an_index_of_several_machines_is_looked_through(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    layout.add(layer(entry("a", b"1")))
    others = [{**layout.manifests[0], "platform": {"architecture": name, "os": name}} for name in ("s390x", "unknown")]
    inner = json.dumps({"schemaVersion": 2, "manifests": [*others, layout.manifests[0]]})
    layout.index([layout.blob(inner.encode(), "index.v1+json")])
    assert files(Path(unpacked(f"oci:{layout.folder}", quietly).root)) == {"a": "1"}


def test_who_begins_and_where(tmp_path: Path) -> None:
    accounts = entry("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:44::/var/www:/bin/sh\n")
    groups = entry("etc/group", b"root:x:0:\ngames:x:60:\n")
    expected = {"": (0, 0, "/root"), "web": (33, 44, "/var/www"), "web:games": (33, 60, "/var/www"), "7": (7, 0, "/"),
                "33:5": (33, 5, "/var/www")}  # fmt: skip
    for number, (user, wanted) in enumerate(expected.items()):
        layout = Layout(tmp_path / str(number))
        layout.add(layer(accounts, groups), User=user, Env=["A=1=2", "B=", "C"])
        image = unpacked(f"oci:{layout.folder}", quietly)
        assert (image.uid, image.gid, image.home) == wanted
        assert image.environment == {"A": "1=2", "B": "", "C": ""}


UNPACK = """
import sys, time
from stockade_sandbox.backends.oci import unpacked
def slowly(what, done, total):
    print("going", flush=True)
    time.sleep(float(sys.argv[2]))
print(unpacked(sys.argv[1], slowly).root)
"""


def test_a_killed_one_leaves_no_half_image(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    layout.add(layer(*(entry(f"f{number}", bytes(2 << 20)) for number in range(8))))
    argv = [sys.executable, "-c", UNPACK, f"oci:{layout.folder}", "0.05"]
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "stockade/images"
    for lines in (1, 12, 25):
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for _ in range(lines):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        left = [one.name for one in cache.iterdir() if one.is_dir()]
        assert left
        assert all(name.startswith("copies-") for name in left)
    while start_time(process.pid, zombies=False):
        time.sleep(0.01)
    root = Path(unpacked(f"oci:{layout.folder}", quietly).root)
    assert len(list(root.iterdir())) == 8
    assert [one for one in cache.iterdir() if one.is_dir()] == [root.parent]


def test_many_at_once_unpack_it_once(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    layout.add(layer(*(entry(f"f{number}", bytes(1 << 20)) for number in range(8))))
    argv = [sys.executable, "-c", UNPACK, f"oci:{layout.folder}", "0.01"]
    processes = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len({lines[-1] for lines in said}) == 1
    assert sorted(len(lines) > 1 for lines in said) == [False, False, True]
