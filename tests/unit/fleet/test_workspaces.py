"""The store of a fleet's folders, without the fleet: what comes out is what went in, or it is said."""

import os
import shutil
from pathlib import Path

import pytest

from stockade.core.errors import SandboxFailed
from stockade.fleet import workspaces
from stockade.fleet.elsewhere import placing
from stockade.fleet.workspaces import Begin, Point, Sent, Workspaces, point_named
from stockade.paths import run_dir
from stockade_sandbox.overlay import Review
from stockade_sandbox.overlay.prepare import prepare_layer
from stockade_sandbox.overlay.snapshots import Snapshots
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.results import FolderLayer

LAYER = FolderLayer(host="/nowhere", inside="/workspace", mode="overlay", strategy="overlay", layer="/nowhere/0")


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Machines":
    return Machines(tmp_path, monkeypatch)


class Machines:
    """Two, by their state folders, and a store that both see."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tmp_path, self._monkeypatch = tmp_path, monkeypatch
        self.folder = tmp_path / "one" / "demo"
        self.folder.mkdir(parents=True)

    def on(self, name: str) -> Workspaces:
        self._monkeypatch.setenv("XDG_STATE_HOME", str(self.tmp_path / name / "state"))
        return Workspaces(str(self.tmp_path / "store"))

    @property
    def tars(self) -> list[Path]:
        return sorted((self.tmp_path / "store" / "folders").iterdir())


def test_a_folder_and_a_file_come_as_they_were(machines: Machines) -> None:
    folder, file = machines.folder, machines.tmp_path / "one" / "given"
    (folder / "in").mkdir()
    (folder / "in" / os.fsdecode(b"\xff")).write_bytes(b"\0" * 5000 + b"end")
    (folder / "in" / "run").write_text("true")
    (folder / "in" / "run").chmod(0o755)
    (folder / "away").symlink_to("../../elsewhere")
    os.utime(folder / "in", ns=(10**9, 123456789012345678))
    file.write_text("given")
    machines.on("one").begin("run", [str(folder), str(file)])
    there = machines.on("two")
    begin = there.begun("run")
    with there.here(begin) as places:
        came = Path(places[str(folder)])
        assert (came / "in" / os.fsdecode(b"\xff")).read_bytes() == b"\0" * 5000 + b"end"
        assert (came / "in" / "run").stat().st_mode & 0o777 == 0o755
        assert os.readlink(came / "away") == "../../elsewhere"
        assert (came / "in").stat().st_mtime_ns == 123456789012345678
        assert Path(places[str(file)]).read_text() == "given"
        assert (came.name, Path(places[str(file)]).name) == ("demo", "given")


def test_what_is_the_same_is_sent_once(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machines.on("one")
    (machines.folder / "a").write_text("a")
    here.begin("one", [str(machines.folder)])
    with monkeypatch.context() as patch:
        patch.setattr(workspaces, "write_tar", None)  # nothing is read again
        here.begin("two", [str(machines.folder)])
    assert here.begun("one").sent == here.begun("two").sent
    assert len(machines.tars) == 1
    (machines.folder / "a").write_text("b")
    here.begin("three", [str(machines.folder)])
    assert len(machines.tars) == 2
    assert here.begun("one").sent != here.begun("three").sent
    here.begin("one", [])  # of a run that had begun nothing is changed
    assert len(here.begun("one").sent) == 1


def test_what_no_run_uses_makes_room(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "_CACHED", 1)
    here, begins = machines.on("one"), list[Begin]()
    for number in range(3):
        (machines.folder / "a").write_text(f"{number}")
        here.begin(f"run{number}", [str(machines.folder)])
        begins.append(here.begun(f"run{number}"))
    with here.here(begins[0]) as first:
        with here.here(begins[1]) as second:
            folder = Path(*second.values()).parent
        os.utime(folder.with_name(f"{folder.name}.lock"), (1, 1))  # a while ago: the clock's grain is a few ms
        with here.here(begins[2]) as third:
            assert [Path(*one.values()).exists() for one in (first, second, third)] == [True, False, True]


def wrote(machines: Machines) -> tuple[FolderLayer, str]:
    """What a run wrote over the folder, and the snapshot of it."""
    (machines.folder / "old").write_text("old")
    made = prepare_layer(FolderRule(host=str(machines.folder)), run_dir("run"), sandbox_uid=None,
                         can_overlay=lambda _: None)  # fmt: skip
    assert made.strategy == "overlay"
    upper = made.written
    assert upper is not None
    (upper / "new").write_text("new")
    os.mknod(upper / "old", 0o020000, 0)
    name = Snapshots(made).take()
    assert name is not None
    return made, name


@pytest.mark.parametrize("left", [0, 1], ids=["", "a place before it"])
def test_what_was_written_is_whole_elsewhere_by_its_seal(machines: Machines, left: int) -> None:
    """A place before it: a worker that was killed as it began left it, and the run went on there."""
    here = machines.on("one")
    if left:
        (run_dir("run") / "0").mkdir(parents=True)
    layer, name = wrote(machines)
    assert Path(str(layer.layer)).name == str(left)
    seal = Review().seal(layer)
    here.keep("run", [layer], (name,), "end", ended=True)
    shutil.rmtree(run_dir("run"))
    assert here.bring("run", [layer], "end", 1)
    sealed = FolderLayer(host=layer.host, inside=layer.inside, mode="overlay", strategy="overlay", layer=layer.layer,
                         seal=seal)  # fmt: skip
    assert {one.path: one.kind for one in Review().changes(sealed)} == {"new": "added", "old": "deleted"}
    assert not here.bring("run", [layer], "another", 1)
    here.forget("run")
    assert not here.bring("run", [layer], "end", 1)


@pytest.mark.parametrize("path", ["../../x", "kept/../x", "layer.json", "kept/", "kept/.x", "other/1", "kept/1/2"])
def test_a_store_that_somebody_else_wrote_to_is_not_believed(machines: Machines, path: str) -> None:
    here = machines.on("one")
    layer, name = wrote(machines)
    here.keep("run", [layer], (name,), "end")
    file = machines.tmp_path / "store" / "runs" / "run" / "at" / "end.json"
    piece = workspaces.Piece.model_construct(path=path, name="0" * 64)
    point = Point.model_construct(names=(name,), pieces=((piece,),), times=({},))
    file.write_text(point.model_dump_json())
    with pytest.raises(SandboxFailed, match="is not of ours"):
        here.bring("run", [layer], "end")


def test_what_is_damaged_there_is_said(machines: Machines) -> None:
    here = machines.on("one")
    layer, name = wrote(machines)
    here.keep("run", [layer], (name,), point_named((name,)))
    for segment in (machines.tmp_path / "store").glob("runs/run/segments/*"):
        segment.write_bytes(segment.read_bytes()[:-1] + b"x")
    with pytest.raises(SandboxFailed, match="is damaged in"):
        here.bring("run", [layer], point_named((name,)))
    (machines.tmp_path / "store" / "runs" / "run" / "begin.json").write_text('{"sent": 1}')
    with pytest.raises(SandboxFailed, match="is not of ours"):
        here.begun("run")
    with pytest.raises(SandboxFailed, match="does not give what is kept there"):
        here.begun("never")


@pytest.mark.parametrize(("host", "name"), [
    ("/x", "../../../etc"), ("/x", "/etc/x"), ("/x", ""), ("/x", "A" * 64), ("/x/..", "0" * 64), ("/", "0" * 64),
    ("x", "0" * 64),
])  # fmt: skip
def test_a_hash_is_a_hash_and_a_folder_has_a_name(machines: Machines, host: str, name: str) -> None:
    here = machines.on("one")
    here.begin("run", [])
    file = machines.tmp_path / "store" / "runs" / "run" / "begin.json"
    begin = Begin.model_construct(sent=(Sent.model_construct(host=host, name=name),), state="/x", since_ns=0)
    file.write_text(begin.model_dump_json())
    with pytest.raises(SandboxFailed, match="is not of ours"):
        here.begun("run")


def test_a_path_in_two_of_the_places_is_at_the_inner_one() -> None:
    place = placing({"/a": "/x/1", "/a/b": "/x/2", "/a/b/c": "/x/3"})
    assert [place(path) for path in ("/a", "/a/b", "/a/b/c/d", "/a/bc", "/b")] == [
        "/x/1", "/x/2", "/x/3/d", "/x/1/bc", "/b",
    ]  # fmt: skip
