import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.errors import UsageError
from stockade_sandbox.overlay.diff import TEXT_BYTES, count_lines, hunks, is_binary
from stockade_sandbox.results import Change
from tests.unit.sandboxes.test_folders.helpers import Bench

TOOLS = {"git": ["git", "apply", "--unsafe-paths", "-"], "patch": ["patch", "-p1", "--no-backup-if-mismatch"]}


def _patched(old: bytes, new: bytes, folder: Path, tool: str) -> bytes:
    target = folder / "f"
    target.write_bytes(old)
    text = "--- a/f\n+++ b/f\n" + "".join(hunk.text for hunk in hunks(old, new))
    subprocess.run(
        TOOLS[tool], cwd=folder, input=text.encode("utf-8", "surrogateescape"), check=True, capture_output=True
    )
    return target.read_bytes()


LINES = st.lists(st.sampled_from([b"a", b"b", b"\r", b"", b"\xff\xfe", b"-- x", b"\x1b[31m", b"\x0c"]), max_size=30)
TEXT = st.builds(lambda lines, end: b"\n".join(lines) + end, LINES, st.sampled_from([b"", b"\n"]))


@given(old=TEXT, new=TEXT)
def test_patch_tools_make_the_new_from_the_old(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, new: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / "patched"
    folder.mkdir(exist_ok=True)
    if old != new and old and new:
        assert _patched(old, new, folder, "git") == new


def test_counts_agree_with_the_diff() -> None:
    assert count_lines(b"a\nb\nc\n", b"a\nB\nc\nd") == (2, 1)
    assert count_lines(b"", b"a\nb") == (2, 0)
    assert count_lines(b"a\n", b"") == (0, 1)


def test_a_pair_too_hard_to_compare_is_replaced_whole() -> None:
    old = b"".join(b"%d\n" % number for number in range(5000))
    new = b"".join(b"%d\n" % (number * 7 % 5000) for number in range(5000))
    added, removed = count_lines(old, new)
    assert added == removed
    assert added >= 4990


def test_binary_is_a_nul_near_the_start() -> None:
    assert is_binary(b"a\0")
    assert not is_binary(b"\xff\xfe text")


@pytest.mark.parametrize("tool", TOOLS)
def test_the_whole_review_applies_with_real_tools(upper_bench: Bench, tmp_path: Path, tool: str) -> None:
    bench = upper_bench
    bench.write("a.txt", "one\ntwo\nthree\n")
    bench.write("no newline", "x\ny")
    bench.write("gone.txt", "bye\n")
    bench.write("run.sh", "#!/bin/sh\n")
    bench.write("sub/é\t.txt", "é\n")
    bench.write("latin", b"caf\xe9\n")
    bench.write("empty-gone", "")
    subprocess.run(["cp", "-a", bench.host, tmp_path / "twin"], check=True)
    also = "rm empty-gone; " if tool == "git" else ""  # GNU patch asks before it removes an empty file
    bench.bash(
        also + "sed -i s/two/2/ a.txt; printf 'x\\nz' > 'no newline'; rm gone.txt; chmod +x run.sh; "
        "echo f >> $'sub/é\\t.txt'; "
        "printf '\\xff\\n' >> latin; echo new > 'new file'; echo q > $'quote\"\\n.txt'; ln -s a.txt link; : > empty; "
        "mkdir emptydir; chmod +x new\\ file; echo line >> run.sh"
    )
    diff = bench.diff()
    done = subprocess.run(
        TOOLS[tool],
        cwd=tmp_path / "twin",
        input=diff.encode("utf-8", "surrogateescape"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr, diff)
    bench.apply()
    (bench.host / "emptydir").rmdir()
    twin = Bench(tmp_path, "copy")
    (tmp_path / "twin").rename(tmp_path / "host")
    assert twin.shown() == bench.shown()


def test_what_is_not_text_is_one_line(bench: Bench) -> None:
    bench.write("blob", b"\0old")
    bench.write("folder/f", "x\n")
    bench.bash("printf '\\0new' > blob; yes | head -c 2000000 > long; mkdir empty; chmod 700 folder; mkfifo pipe")
    lines = bench.diff().splitlines()
    assert lines == [
        "Binary file blob (4 bytes)",
        "directory b/empty added",
        "directory b/folder mode 0755 -> 0700",
        "File long is too large to be shown (2000000 bytes)",
        "special b/pipe added",
    ]
    assert TEXT_BYTES < 2_000_000


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "", "a//b", "a/../b"])
def test_paths_out_of_the_folder_are_not_shown(upper_bench: Bench, path: str) -> None:
    upper_bench.bash(":")
    with pytest.raises(UsageError, match="not a path"):
        upper_bench.review.unified_diff(upper_bench.layer, Change(path=path, kind="deleted"))


def test_a_mode_alone_is_shown_without_content(bench: Bench) -> None:
    bench.write("blob", b"\0x")
    bench.bash("chmod 755 blob")
    assert bench.diff() == "diff --git a/blob b/blob\nold mode 100644\nnew mode 100755\n"


def test_a_symlink_is_never_followed_to_show_it(bench: Bench) -> None:
    bench.bash("ln -s /etc/passwd l; mkdir d; ln -s /etc d/e")
    assert "root:" not in bench.diff()
    assert bench.review.unified_diff(bench.layer, Change(path="d/e/passwd", kind="added")) == ""
