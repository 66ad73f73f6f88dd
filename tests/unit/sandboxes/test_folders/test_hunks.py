"""A file is applied by hunk: what was chosen is written, the rest stays to be decided on, and both are taken back."""

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade_sandbox.errors import ChangedOnHost, ReviewOutdated, UsageError
from stockade_sandbox.overlay.diff import Hunk, hunks, patched
from stockade_sandbox.overlay.undo import recover_folder
from stockade_sandbox.results import Decision
from tests.unit.sandboxes.test_folders.children import cut_off_at
from tests.unit.sandboxes.test_folders.helpers import Bench
from tests.unit.sandboxes.test_folders.test_diff import TEXT
from tests.unit.sandboxes.test_folders.test_undo import everything

OLD = b"".join(b"%d\n" % number for number in range(1, 31))
NEW = OLD.replace(b"2\n", b"two\n", 1).replace(b"15\n", b"fifteen\nand more\n").replace(b"28\n", b"")
ODD = ["-x", "new\nline", "not-\udcff-utf8", "n" * 255, "sub/ünï"]


@given(old=TEXT, new=TEXT, data=st.data())
def test_any_of_the_hunks_make_what_git_makes_of_them(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, new: bytes, data: st.DataObject
) -> None:
    parts = hunks(old, new)
    assert patched(old, parts) == new
    assert patched(old, []) == old
    assert patched(old, [one for part in parts for one in part.split()]) == new
    chosen = [part for part in parts if data.draw(st.booleans())]
    if not (old and new and chosen):
        return
    folder = tmp_path_factory.getbasetemp() / "hunks"
    folder.mkdir(exist_ok=True)
    (folder / "f").write_bytes(old)
    patch = "--- a/f\n+++ b/f\n" + "".join(part.text for part in chosen)
    argv = ["git", "apply", "--unsafe-paths", "--recount", "-"]
    subprocess.run(argv, cwd=folder, input=patch.encode(errors="surrogateescape"), check=True, capture_output=True)
    assert patched(old, chosen) == (folder / "f").read_bytes()


def test_a_hunk_is_split_at_what_did_not_change() -> None:
    (whole,) = hunks(b"a\nb\nc\nd\ne\n", b"A\nb\nC\nd\nE\n")
    assert [part.text for part in whole.split()] == [
        "@@ -1,2 +1,2 @@\n-a\n+A\n b\n",
        "@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n",
        "@@ -4,2 +4,2 @@\n d\n-e\n+E\n",
    ]
    assert patched(b"a\nb\nc\nd\ne\n", whole.split()[1:2]) == b"a\nb\nC\nd\ne\n"


def test_an_edited_hunk_says_what_is_written() -> None:
    (hunk,) = hunks(b"a\nb\n", b"a\nbot\n")
    mine = hunk.edited(b"@@ any @@\n# a remark\n a\n-b\n+mine\n+too\n\\ No newline at end of file\n")
    assert patched(b"a\nb\n", [mine]) == b"a\nmine\ntoo"
    for text in (b" a\n-other\n+mine\n", b" a\n", b"a\n-b\n+mine\n"):
        with pytest.raises(ValueError, match="line"):
            hunk.edited(text)


def test_hunks_that_do_not_fit_are_refused() -> None:
    hunk = Hunk(0, 0, (b"-a\n", b"+b\n"))
    with pytest.raises(ValueError, match="line 1"):
        patched(b"c\n", [hunk])
    with pytest.raises(ValueError, match="line 1"):
        patched(b"a\n", [hunk, hunk])


def _bot_writes(bench: Bench, name: str) -> None:
    bench.write(name, OLD, 0o640)
    bench.begin()
    bench.bash(f"sed -i 's/^2$/two/; s/^15$/fifteen\\nand more/; /^28$/d' {_quoted(name)}; chmod 755 {_quoted(name)}")


def _quoted(name: str) -> str:
    return "-- $'" + "".join(f"\\x{byte:02x}" for byte in name.encode(errors="surrogateescape")) + "'"


def _parts(bench: Bench) -> tuple[str, list[Hunk]]:
    (change,) = bench.changes()
    texts = bench.review.texts(bench.layer, change)
    assert texts == (OLD, NEW)
    return change.path, hunks(*texts)


@pytest.mark.parametrize("name", ODD)
def test_hunks_of_files_with_odd_names(bench: Bench, name: str) -> None:
    _bot_writes(bench, name)
    before = everything(bench.host)
    path, parts = _parts(bench)
    assert len(parts) == 3
    reviewed = bench.review.digests(bench.layer, bench.changes())
    some = patched(OLD, parts[1:2])
    bench.review.apply(bench.layer, bench.changes(), contents={path: some}, reviewed=reviewed)
    host = bench.host / name
    assert host.read_bytes() == some
    assert host.stat().st_mode & 0o777 == 0o640  # the mode is part of the rest
    (rest,) = bench.changes()
    assert (rest.kind, rest.added_lines, rest.removed_lines) == ("modified", 1, 2)
    assert bench.apply() == (path,)
    assert host.read_bytes() == NEW
    assert host.stat().st_mode & 0o777 == 0o755
    bench.review.undo(bench.layer)
    assert everything(bench.host) == before


def test_what_is_left_conflicts_only_with_what_the_user_writes_after(bench: Bench) -> None:
    _bot_writes(bench, "f")
    path, parts = _parts(bench)
    bench.review.apply(bench.layer, bench.changes(), contents={path: patched(OLD, parts[:1])})
    (bench.host / "f").write_bytes(patched(OLD, parts[:1]) + b"mine\n")
    with pytest.raises(ChangedOnHost):
        bench.apply()
    bench.review.apply(bench.layer, bench.changes(), merge=True)
    assert (bench.host / "f").read_bytes() == NEW + b"mine\n"


def test_a_conflict_is_one_by_hunk_too(bench: Bench) -> None:
    _bot_writes(bench, "f")
    path, parts = _parts(bench)
    (bench.host / "f").write_bytes(OLD + b"mine\n")
    with pytest.raises(ChangedOnHost):
        bench.review.apply(bench.layer, bench.changes(), contents={path: patched(OLD, parts[:1])})
    assert (bench.host / "f").read_bytes() == OLD + b"mine\n"


@pytest.mark.parametrize("who", ["user", "bot"])
def test_what_was_looked_at_is_what_is_applied(bench: Bench, who: str) -> None:
    """Of the same size and mode, so that only the content tells."""
    _bot_writes(bench, "f")
    changes = bench.changes()
    reviewed = bench.review.digests(bench.layer, changes)
    if who == "bot":
        bench.bash("sed -i 's/^two$/TWO/' f")
    else:
        (bench.host / "f").write_bytes(OLD.replace(b"30", b"03"))
    with pytest.raises(ReviewOutdated, match="'f'"):
        bench.review.apply(bench.layer, changes, reviewed=reviewed, force=True)
    assert b"fifteen" not in (bench.host / "f").read_bytes()
    bench.review.apply(bench.layer, changes, force=True)
    assert b"fifteen" in (bench.host / "f").read_bytes()


def test_only_a_modified_file_has_parts(bench: Bench) -> None:
    bench.write("gone", "x\n")
    bench.begin()
    bench.bash("rm gone; echo new > new; mkdir folder; ln -s new link")
    for change in bench.changes():
        assert bench.review.texts(bench.layer, change) is None
        with pytest.raises(UsageError, match="in part"):
            bench.review.apply(bench.layer, [change], contents={change.path: b"y\n"})
    assert sorted(path.name for path in Path(bench.host).iterdir()) == ["gone"]


STEPS = ("opened", "staged", "decided", "recorded", "place", "placed", "finished", "done", "cleaned")


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_while_hunks_are_applied_leaves_all_of_them_or_none(
    bench: Bench, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files in part and one whole; what a kill cut off is complete, or nothing of it, and all of it can go on.
    Nothing of the user's files stays in the folder for temporary ones."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for name in ("f", "-g"):
        bench.write(name, OLD, 0o640)
    bench.begin()
    bench.bash("sed -i 's/^2$/two/; s/^28$/28th/' ./f ./-g; echo x > new")
    before = everything(bench.host)
    half = patched(OLD, hunks(OLD, OLD.replace(b"2\n", b"two\n", 1)))
    contents = {"f": half, "-g": half}
    decided = list[Decision]()

    def act() -> None:
        bench.review.apply(bench.layer, bench.changes(), contents=contents, record=decided.append)

    cut_off_at(step, act)
    assert list(temporary.iterdir()) == []
    recover_folder(bench.host, bench.top)
    there = everything(bench.host)
    applied = (bench.host / "new").exists()
    assert applied == (step not in ("opened", "staged"))
    assert {(bench.host / name).read_bytes() for name in contents} == ({half} if applied else {OLD})
    assert applied or there == before
    if not applied:
        act()
    assert bench.kinds() == {"f": "modified", "-g": "modified"}
    bench.apply()
    assert bench.changes() == ()
    assert b"28th" in (bench.host / "f").read_bytes()
    bench.review.undo(bench.layer)
    assert everything(bench.host) == before


@pytest.mark.parametrize(
    ("made", "command", "chosen", "there"),
    [
        ("echo x > Name", "mv Name name", {"name"}, {"Name", "name"}),
        ("mkdir d; echo x > d/a; echo y > d/b", "rm -r d; echo file > d", {"d", "d/a", "d/b"}, {"d"}),
        ("ln -s loop loop; ln -s b a; ln -s a b", "rm loop; ln -s a loop; echo x > new", {"new"},
         {"loop", "a", "b", "new"}),
        ("mkdir ro; echo x > ro/f; chmod 555 ro", "chmod 755 ro; echo y > ro/f; echo z > ro/g; chmod 555 ro", {"ro/f"},
         {"ro", "ro/f"}),
        ("mkdir -p a/b; echo x > a/b/c", "mv a z", {"z/b/c"}, {"a", "a/b", "a/b/c", "z", "z/b", "z/b/c"}),
    ],
)  # fmt: skip
def test_a_part_of_odd_changes(bench: Bench, made: str, command: str, chosen: set[str], there: set[str]) -> None:
    """Names that differ only in case, a folder that becomes a file, loops, closed folders, a folder that was moved."""
    subprocess.run(["bash", "-ec", made], cwd=bench.host, check=True)
    bench.begin()
    before = everything(bench.host)
    bench.bash(command)
    some = [change for change in bench.changes() if change.path in chosen]
    assert {change.path for change in some} == chosen
    bench.review.apply(bench.layer, some, reviewed=bench.review.digests(bench.layer, some))
    assert {str(path.relative_to(bench.host)) for path in bench.host.rglob("*")} == there
    bench.apply()
    assert bench.changes() == ()
    bench.review.undo(bench.layer)
    assert everything(bench.host) == before
