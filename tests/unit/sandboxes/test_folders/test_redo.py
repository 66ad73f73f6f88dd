"""Of what was undone a part is applied again, after its layer is gone."""

import random
import subprocess

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stockade_sandbox.overlay import TakenBack
from stockade_sandbox.results import Decision
from tests.support.scale import scaled
from tests.unit.sandboxes.test_folders.conftest import MakeBench
from tests.unit.sandboxes.test_folders.helpers import Bench
from tests.unit.sandboxes.test_folders.test_apply import OPERATION
from tests.unit.sandboxes.test_folders.test_undo import done_with, everything, fill


@settings(max_examples=scaled(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATION, min_size=1, max_size=12), seed=st.integers(0, 1 << 32))
def test_part_after_part_comes_again(make_bench: MakeBench, operations: list[str], seed: int) -> None:
    """By any parts in any order it comes to the same, one undo takes all of them back, and whole it comes again.

    The parts are of a seed, not drawn: how many changes there are is not the operations' alone, as `cp -r d d/y`
    copies what the file system lists first.
    """
    parts = random.Random(seed)
    bench = make_bench("copy")
    script = "echo a > a; mkdir -p d e/f; echo x > d/x; echo z > e/f/z"
    subprocess.run(["bash", "-c", script], cwd=bench.host, check=True)
    bench.begin()
    before = everything(bench.host)
    bench.bash("\n".join(operations))
    bench.apply()
    after = everything(bench.host)
    done_with(bench)
    for _ in range(2):
        assert bench.review.undo(bench.layer).left == {}
        assert everything(bench.host) == before
        for _ in range(2):
            if left := TakenBack().changes(bench.layer):
                bench.review.redo(bench.layer, parts.sample(left, parts.randint(0, len(left))))
        assert bench.review.redo(bench.layer).left == {}
        assert everything(bench.host) == after
        assert TakenBack().changes(bench.layer) == ()
    assert bench.review.undo(bench.layer).left == {}
    assert bench.review.redo(bench.layer).left == {}
    assert everything(bench.host) == after


def test_some_hunks_come_again_and_the_others_later(bench: Bench) -> None:
    before = fill(bench, "seq 9 > a; echo 1 > b; chmod 640 a")
    bench.bash(
        "sed -i -e 's/^2$/two/' -e 's/^8$/eight/' a; chmod 755 a; echo 2 > b; mkdir -p new/deep; echo > new/deep/f"
    )
    bench.apply()
    after = everything(bench.host)
    done_with(bench)
    bench.review.undo(bench.layer)
    decided: list[Decision] = []
    some = [one for one in TakenBack().changes(bench.layer) if one.path in ("a", "new/deep/f")]
    first = (bench.host / "a").read_bytes().replace(b"2", b"two")
    moved = bench.review.redo(bench.layer, some, {"a": first}, record=decided.append)
    assert (moved.paths, moved.left) == (["a", "new", "new/deep", "new/deep/f"], {})
    assert [(one.paths, one.back) for one in decided] == [(("a", "new", "new/deep", "new/deep/f"), False)]
    assert (bench.host / "a").read_bytes() == first
    assert bench.host.joinpath("a").stat().st_mode & 0o777 == 0o640
    left = TakenBack()
    assert {one.path: one.added_lines for one in left.changes(bench.layer)} == {"a": 1, "b": 1}
    assert "+eight" in "".join(left.unified_diff(bench.layer, one) for one in left.changes(bench.layer))
    bench.review.redo(bench.layer)
    assert everything(bench.host) == after
    assert bench.review.undo(bench.layer).left == {}
    assert everything(bench.host) == before


def test_of_a_part_what_was_edited_since_stays(bench: Bench) -> None:
    fill(bench, "echo 1 > a; echo 1 > b; mkdir d; echo 1 > d/gone; echo 1 > d/other")
    bench.bash("echo 2 > a; echo 2 > b; rm -r d")
    bench.apply()
    done_with(bench)
    bench.review.undo(bench.layer)
    bench.write("a", "mine")
    some = [one for one in TakenBack().changes(bench.layer) if one.path in ("a", "d", "d/gone")]
    found = bench.review.redo(bench.layer, some)
    assert found.left == {"a": "it was edited since", "d": "it is a folder with something in it now"}
    assert found.paths == ["d/gone"]
    bench.review.redo(bench.layer, some)
    assert (bench.host / "a").read_text() == "mine"
    assert bench.review.redo(bench.layer, some, force=True).paths == ["a"]
    assert (bench.host / "a").read_text() == "2\n"
    found = bench.review.undo(bench.layer)
    assert (sorted(found.paths), found.left) == (["a", "d/gone"], {})
    assert (bench.host / "a").read_text() == "mine"
