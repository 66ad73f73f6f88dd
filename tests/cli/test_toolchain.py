"""The user's own interpreters inside, as they allowed it: --toolchain, the question, what is remembered."""

import os
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, Stage
from tests.cli.test_terminal import Terminal

ASKED = b"see these of your programs, read-only? [y]es / [N]o: "
LOOK = say("shell", command="checker -q; touch new")


@pytest.fixture
def project(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Its virtual environment is made of a Python in the home, and its `checker` is a script of that Python."""
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    base = stage.home / ".pyenv" / "versions" / "3.12.4"
    python, checker = base / "bin" / "python3", stage.demo / ".venv" / "bin" / "checker"
    for path, text in ((python, '#!/bin/sh\necho three "$2"\n'), (checker, f"#!{checker.with_name('python3')}\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    checker.with_name("python3").symlink_to(python)
    (stage.demo / ".venv" / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    return stage


def ran(stage: Stage, *flags: str) -> tuple[bool, str]:
    """Whether the check ran inside, and what stood on stderr."""
    ended = stage.run(LOOK, DONE, flags=("--check", "checker -q", "--no-input", *flags))
    assert ended.status in (0, 1), ended.err
    return "three -q" in ended.err, ended.err


def test_what_the_user_names_is_seen_and_nothing_else(project: Stage) -> None:
    seen, err = ran(project)
    assert not seen
    assert "not seen inside: python of .venv (--toolchain auto)" in err
    assert ran(project, "--toolchain", "auto")[0]
    seen, err = ran(project, "--toolchain", "none")
    assert not seen
    assert "not seen inside" not in err


def test_a_program_of_the_api_finds_it_too(project: Stage) -> None:
    done = project.call("sandbox", "exec", "--folder", str(project.demo), "--toolchain", "auto", "--", "checker", "-q")
    assert (done.status, done.out) == (0, "three -q\n"), done.err


def test_a_folder_with_programs(project: Stage, tmp_path: Path) -> None:
    own = tmp_path / "own" / "bin" / "hello"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\necho hello\n")
    own.chmod(0o755)
    done = project.call("sandbox", "exec", "--toolchain", str(tmp_path / "own"), "--", "hello")
    assert (done.status, done.out) == (0, "hello\n"), done.err


@pytest.mark.parametrize(
    ("file", "left"), [("CMakeLists.txt", "out/debug/CMakeCache.txt"), ("meson.build", "b/meson-private/coredata.dat")]
)
def test_a_build_tree_finds_the_folder_where_it_is_on_this_machine(file: str, left: str, stage: Stage) -> None:
    look = f"test -e {stage.demo} && touch {stage.demo}/made && ls /workspace || echo no"
    (stage.demo / left).parent.mkdir(parents=True)
    (stage.demo / left).touch()
    for seen in (False, True):
        done = stage.call("sandbox", "exec", "--folder", str(stage.demo), "--", "sh", "-c", look)
        assert ("made" in done.out, done.out == "no\n") == (seen, not seen), done.err
        (stage.demo / file).touch()
    assert not (stage.demo / "made").exists()


def test_a_program_of_the_users_that_is_not_found_says_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    own = stage.home / ".local" / "bin" / "hello"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\necho hello\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    missing = f"{own} is not seen inside"
    for program, flags, seen in (
        ("hello", (), True),
        ("hello", ("--toolchain", "none"), False),
        ("nowhere", (), False),
    ):
        done = stage.call("sandbox", "exec", *flags, "--", program)
        assert (done.status, missing in done.err) == (127, seen), done.err


def test_what_cannot_be_had_is_refused(project: Stage) -> None:
    for flags, words in (
        (("--toolchain", "auto", "--sandbox", "docker"), "does not show programs of this machine"),
        (("--toolchain", "auto", "--image", "x"), "does not show programs of this machine"),
        (("--toolchain", "/nowhere"), "there is no such folder"),
        (("--toolchain", str(project.home)), "your home is in it"),
    ):
        ended = project.run(DONE, flags=(*flags, "--no-input"))
        assert (ended.status, words in ended.err) == (2, True), ended.err


def test_it_is_asked_once_and_taken_back(project: Stage) -> None:
    run = ("run", "count", "--folder", str(project.demo), "--model", project.script(LOOK, DONE), "--discard")
    for answer, after in ((b"\n", b"they are not seen"), (b"y\n", b"three -q")):
        shell = Terminal(project, *run)
        shell.until(ASKED)
        assert b"python of .venv: .venv/bin/python leads to it" in shell.seen
        shell.type(answer)
        shell.until(after)
        assert shell.status() == 0
    again = Terminal(project, *run)
    assert again.status() == 0
    assert ASKED not in again.seen
    assert ran(project)[0]
    listed = project.call("approvals", "list")
    assert "see python of .venv, read-only" in listed.out
    assert project.call("approvals", "rm", "1").status == 0
    assert not ran(project)[0]


def test_it_goes_on_with_what_it_saw(project: Stage) -> None:
    more = say("shell", command="checker again")
    ended = project.run(LOOK, DONE, more, DONE, flags=("--toolchain", "auto", "--no-input"))
    assert ended.status == 0, ended.err
    resumed = project.call("runs", "resume", "last", "and more", "--discard")
    assert (resumed.status, "three again" in resumed.err) == (0, True), resumed.err
