"""Kills while changes are applied or thrown away: the folder is one of its two legal trees, and nothing is lost."""

import itertools
import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, PATIENCE_S, Stage
from tests.cli.test_terminal import Terminal
from tests.support.aimed import aimed, killed_at, overlaid
from tests.support.worlds import listing

FILES = 3_000


def _call(stage: Stage, within: tuple[str, ...], *arguments: str) -> str:
    argv = [*within, sys.executable, "-m", "stockade.cli", *arguments]
    done = subprocess.run(argv, capture_output=True, env=stage.environment(), timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


@pytest.mark.parametrize("first", ["apply", "discard"])
@pytest.mark.parametrize("removed", [50, 700, 2_990])
def test_no_file_of_the_host_goes_with_a_copy_whose_removal_was_cut(
    stage: Stage, tmp_path: Path, first: str, removed: int
) -> None:
    """On 90cacfa 248 files of the host are "applied" as deleted: the layer was removed in place, a copy's rest taken
    for what the bot had deleted. The first few files removed are those of looking at the changes."""
    for number in range(FILES):
        (stage.demo / f"f{number}").write_text(f"{number}\n")
    before = stage.tree()
    within = overlaid(tmp_path / "state", stage.state)
    model = stage.script(say("shell", command="echo changed > f7"), DONE)
    _call(stage, within, "run", "x", "--folder", str(stage.demo), "--model", model, "--no-input")
    (layer,) = (tmp_path / "state" / "upper").glob("runs/*/0")
    assert len(list((layer / "copy").iterdir())) == FILES + 1
    after = before if first == "discard" else {**before, "f7": b"changed\n"}
    died = killed_at("os.remove", removed, ["runs", first, "last"], stage.environment(), within)
    assert died
    assert stage.tree() in (before, after)
    argv = [*within, sys.executable, "-m", "stockade.cli", "runs", "apply", "last"]
    subprocess.run(argv, env=stage.environment(), timeout=PATIENCE_S, check=False)
    assert stage.tree() == after


@pytest.mark.parametrize("step", ["decided", "recorded", "place", "placed", "finished"])
def test_without_a_name_the_run_whose_apply_was_cut_off_is_meant(
    stage: Stage, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older run of the folder has changes to decide on too: they are none of that apply's."""
    monkeypatch.chdir(stage.demo)
    before = stage.tree()
    for command in ("echo older > older", "echo newer > newer"):
        stage.run(say("shell", command=command), DONE, flags=("--no-input",))
    assert killed_at(step, 0, ("apply", "last"), stage.environment())
    assert stage.call("apply").status == 0
    assert stage.tree() == {**before, "newer": b"newer\n"}
    assert stage.call("undo").status == 0
    assert stage.tree() == before


ODD = """
printf '1\\n%s\\n' two 3 4 5 6 7 8 9 10 11 12 28th > ./-rf; cp ./-rf "$(printf 'new\\nline')"
cp ./-rf "$(printf 'no-\\377')"; cp ./-rf nn*; mv Readme README
rm file; mkdir file; echo y > file/y; rm -r folder; echo f > folder; chmod u+w closed
cp ./-rf closed/x; chmod u-w closed; ln -sfn loop_a loop_c; ln -sfn self self; chmod 700 data.csv
""".strip().replace("\n", "; ")


def furnish_odd(folder: Path) -> None:
    """Names and kinds that a path on a command line, a line of text or a case-blind table would get wrong."""
    for name in (b"-rf", b"new\nline", b"no-\xff", b"n" * 255, b"Readme", b"file", b"folder/in", b"closed/x"):
        place = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.writelines(b"%d\n" % number for number in range(1, 14))
    for link, target in (("loop_a", "loop_b"), ("loop_b", "loop_a"), ("self", ".")):
        (folder / link).symlink_to(target)
    (folder / "closed").chmod(0o555)


def picked(stage: Stage, run: str, step: str = "", time: int = 0) -> bool:
    """`apply -f`, of whose questions every second one is answered with yes; whether it stopped at the step."""
    program = aimed(step, time) if step else ("-m", "stockade.cli")
    shell = Terminal(stage, "apply", run, "-f", program=program)
    answers = itertools.cycle([b"n\n", b"y\n"])
    while os.waitid(os.P_PID, shell.process.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is None:
        if select.select([shell.descriptor], [], [], 0.02)[0]:
            with suppress(OSError):  # it ended
                shell.seen += os.read(shell.descriptor, 65536)
        if shell.seen.endswith(b",q,?] "):
            shell.type(next(answers))
    _, status = os.waitpid(shell.process.pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        shell.process.kill()
        shell.process.wait()
    else:
        shell.process.returncode = os.waitstatus_to_exitcode(status)
        assert shell.process.returncode == 0, shell.seen
    os.close(shell.descriptor)
    return os.WIFSTOPPED(status)


def only(stage: Stage, run: str, step: str = "", time: int = 0) -> bool:
    """`apply --only`, of some of the odd names."""
    flags = [flag for name in ("-rf", "new\nline", "no-\udcff", "README", "file") for flag in ("--only", name)]
    argv = ["apply", run, *flags, "--flagged"]
    if step:
        return killed_at(step, time, argv, stage.environment())
    assert stage.call(*argv).status == 0
    return False


PREPARED = ("opened", "staged")
STEPS = (*PREPARED, "decided", "recorded", "remove", "removed", "place", "placed", "finished", "done", "cleaned")


@pytest.mark.parametrize(("apply", "steps"), [(picked, STEPS), (only, ("staged", "decided", "place", "done"))])
def test_a_part_of_odd_names_is_applied_whole_or_not_at_all(
    stage: Stage, apply: Callable[..., bool], steps: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut at each step. The rest can be applied later, and all of it taken back, byte for byte."""
    monkeypatch.delenv("CI", raising=False)
    furnish_odd(stage.demo)

    def made() -> str:
        done = stage.run(say("shell", command=ODD), DONE, flags=("--no-input", "--json"))
        assert done.status == 0, done.err
        return str(done.result["run"])

    def all_of(run: str) -> None:
        ended = stage.call("apply", run, "--flagged")
        assert (ended.status, listing(stage.demo)) == (0, new), ended.err
        ended = stage.call("undo", run)
        assert (ended.status, listing(stage.demo)) == (0, old), ended.err

    old, run = listing(stage.demo), made()
    assert listing(stage.demo) == old
    assert not apply(stage, run)
    part = listing(stage.demo)
    assert stage.call("apply", run, "--flagged").status == 0
    new = listing(stage.demo)
    assert len({repr(tree) for tree in (old, part, new)}) == 3
    assert stage.call("undo", run).status == 0
    assert listing(stage.demo) == old
    for step in steps:
        run = made()
        assert apply(stage, run, step), step
        stage.call("diff", run)
        assert listing(stage.demo) == (old if step in PREPARED else part), step
        all_of(run)


@pytest.mark.parametrize("cut", ["decided", "placed", "done", 16, 20, 24, 25, 26])
def test_an_apply_that_was_to_be_committed_is_committed_when_it_is_called_again(
    stage: Stage, cut: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was cut between two programs of git's: the last twelve of 28 come after the apply."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "x")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "x@example.org")

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=stage.demo, capture_output=True, text=True, check=True)
        return done.stdout

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "one")
    stage.run(say("shell", command="echo d >> data.csv; echo new > new"), DONE, flags=("--no-input",))
    step, time = (cut, 0) if isinstance(cut, str) else ("subprocess.Popen", cut)
    died = killed_at(step, time, ["apply", "last", "--commit"], stage.environment())
    assert died
    ended = stage.call("apply", "last", "--commit")
    assert ended.status in (0, 2), ended.err
    assert git("log", "--format=%s") == "count\none\n", ended.err
    assert git("status", "--porcelain") == ""
    assert git("show", "HEAD:new") == "new\n"
    git("fsck", "--strict")
