"""Keeping what a bot wrote: as a commit, as a patch; whatever its files are called."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, Stage
from tests.cli.test_terminal import QUESTION, Terminal

ODD = [b"-x", b"new\nline", b"not-\xff-utf8", b"n" * 255, b":(glob)*", "ünï".encode(), b'quo"ted \\ tab\t']
WHO = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org",
       "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@example.org"}  # fmt: skip


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, input=stdin, capture_output=True, check=True, env={**os.environ, **WHO}
    )
    return done.stdout


@pytest.fixture(autouse=True)
def _known_to_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WHO.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repository(stage: Stage) -> Stage:
    git(stage.demo, "init", "-q", "-b", "main")
    (stage.demo / ".gitignore").write_text("build/\n")
    git(stage.demo, "add", ".")
    git(stage.demo, "commit", "-qm", "one")
    return stage


def made(stage: Stage, command: str, task: str = "count") -> None:
    done = stage.run(say("shell", command=command), DONE, DONE, flags=("--no-input",), task=task)
    assert done.status == 0, done.err


def odd_files(content: str) -> str:
    names = ["$'" + "".join(f"\\x{byte:02x}" for byte in name) + "'" for name in ODD]
    return "; ".join(f"printf {shlex.quote(content)} > ./{name}" for name in names)


def committed(folder: Path) -> list[bytes]:
    return git(folder, "show", "--name-only", "--format=", "-z", "HEAD").split(b"\0")[:-1]


def test_what_was_applied_is_committed_and_nothing_else(repository: Stage) -> None:
    demo = repository.demo
    (demo / "mine").write_text("mine\n")
    (demo / "staged").write_text("mine\n")
    git(demo, "add", "staged")
    hook = demo / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntouch hook-ran\nexit 1\n")
    hook.chmod(0o755)
    made(repository, f"{odd_files('bot')}; rm data.csv; mkdir build; echo x > build/o", task="count\nthem")
    done = repository.call("runs", "apply", "last", "--commit")
    assert done.status == 0, done.err
    assert "on main: 8 files; 1 that ignore files name are not in it" in done.err
    assert set(committed(demo)) == {*ODD, b"data.csv"}
    shown = git(demo, "log", "-1", "--format=%s%n%(trailers:key=Stockade-Run,valueonly)").decode()
    subject, run = shown.split("\n")[:2]
    assert subject == "count them"
    assert run in done.err
    assert (demo / "build" / "o").exists()
    assert not (demo / "hook-ran").exists()
    assert git(demo, "status", "--porcelain", "-z") == b"A  staged\0?? mine\0"
    undone = repository.call("undo", "last")
    assert undone.status == 0
    assert (demo / "data.csv").read_text() == "a\nb\nc\n"
    assert git(demo, "log", "--oneline").count(b"\n") == 2


def test_a_look_runs_nothing_that_a_hostile_repository_names(repository: Stage, tmp_path: Path) -> None:
    """First proved outside: plain git runs it at `git status`, and fetches what the index names and is not there."""
    demo, mark = repository.demo, tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    program.chmod(0o755)
    for key, value in (
        ("core.fsmonitor", str(program)), ("core.sshCommand", str(program)), ("remote.o.url", "ssh://x/y"),
        ("remote.o.promisor", "true"), ("extensions.partialClone", "o"), ("core.repositoryFormatVersion", "1"),
        ("core.sparseCheckout", "true"),
    ):  # fmt: skip
        git(demo, "config", key, value)
    missing = f"100644 {'1' * 40} 0\tsub/.gitignore\n".encode()
    git(demo, "update-index", "--index-info", stdin=missing)
    git(demo, "update-index", "--skip-worktree", "sub/.gitignore")
    for how in (("status",), ("cat-file", "-e", "1" * 40), ("check-ignore", "-q", "sub/x")):
        mark.unlink(missing_ok=True)
        subprocess.run(["git", *how], cwd=demo, check=False, capture_output=True)
        assert mark.exists(), how
    mark.unlink()
    made(repository, "mkdir -p sub build; echo x > sub/x; echo x > build/o; echo x > new")
    assert "1 file that ignore files here name" in repository.call("runs", "replay", "last", "--speed", "0").err
    assert repository.call("apply", "last").status == 0
    assert not mark.exists()


def test_git_that_a_bot_put_on_the_path_is_not_run(
    repository: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, there = tmp_path / "ran", tmp_path / "bin"
    there.mkdir()
    (there / "git").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (there / "git").chmod(0o755)
    made(repository, "echo x > new")
    monkeypatch.setenv("PATH", str(there), prepend=os.pathsep)
    subprocess.run(["git", "status"], cwd=repository.demo, check=True)
    assert mark.exists()
    mark.unlink()
    assert repository.call("runs", "apply", "last", "--commit", "--json").status == 0
    assert not mark.exists()


def test_edits_of_the_users_own_that_come_into_the_commit_are_named(repository: Stage) -> None:
    """Those of a file that the bot changed too; and a file that was never committed."""
    demo = repository.demo
    (demo / "data.csv").write_text("mine\na\nb\nc\n")
    (demo / "notes").write_text("mine\n")
    (demo / "other").write_text("mine\n")
    made(repository, "echo bot >> data.csv; echo bot >> notes; echo bot > new")
    done = repository.call("apply", "last", "--commit")
    assert done.status == 0, done.err
    assert "your own edits that were not committed are in it too: data.csv, notes\n" in done.err
    assert set(committed(demo)) == {b"data.csv", b"notes", b"new"}
    made(repository, "echo more >> data.csv")
    assert "your own" not in repository.call("apply", "last", "--commit").err


def test_what_was_applied_already_can_be_committed_later(repository: Stage) -> None:
    made(repository, "echo x > new; echo y > newer; rm data.csv")
    for flags in (("--only", "new"), ()):
        assert repository.call("apply", "last", *flags).status == 0
    done = repository.call("apply", "last", "--commit", "--json")
    assert (done.status, done.result["commits"].keys()) == (0, {str(repository.demo)}), done.err
    assert set(committed(repository.demo)) == {b"new", b"newer", b"data.csv"}
    again = repository.call("apply", "last", "--commit")
    assert (again.status, "already applied" in again.err) == (2, True)


def test_on_a_new_branch_with_a_message_of_its_own(repository: Stage) -> None:
    made(repository, "echo x > new; rm data.csv; mkdir data.csv; echo y > data.csv/y")
    flags = ("--commit", "-m", "Say x\n\nand y", "--branch", "bots/x", "--json")
    done = repository.call("runs", "apply", "last", *flags)
    assert done.status == 0, done.err
    (name,) = done.result["commits"].values()
    assert git(repository.demo, "rev-parse", "HEAD", "bots/x").decode().split() == [name, name]
    assert git(repository.demo, "symbolic-ref", "HEAD") == b"refs/heads/bots/x\n"
    assert git(repository.demo, "log", "main..", "--format=%B").startswith(b"Say x\n\nand y\n\nStockade-Run: ")
    assert set(committed(repository.demo)) == {b"new", b"data.csv", b"data.csv/y"}
    assert git(repository.demo, "status", "--porcelain") == b""


def test_a_first_commit_and_one_without_a_branch(stage: Stage) -> None:
    git(stage.demo, "init", "-q", "-b", "main")
    made(stage, "echo x > new")
    assert stage.call("apply", "last", "--commit").status == 0
    assert committed(stage.demo) == [b"new"]
    git(stage.demo, "checkout", "-q", "--detach")
    made(stage, "rm new; ln -s data.csv new")
    done = stage.call("apply", "last", "--commit")
    assert " on no branch: 1 file" in done.err
    assert git(stage.demo, "ls-tree", "HEAD", "new").startswith(b"120000 ")


@pytest.mark.parametrize(
    ("before", "flags", "words"),
    [
        ("rm -rf .git", (), "nothing can be committed in "),
        ("git branch there", ("--branch", "there"), "there is a branch there already"),
        ("true", ("--branch", "-x"), "'-x' is no name of a branch"),
        ("true", ("--branch", "a..b"), "'a..b' is no name of a branch"),
        ("echo > .git/MERGE_HEAD", (), "a merge, rebase or the like is under way"),
        ("true", ("--patch", "x"), "--patch writes a file and nothing to the folder"),
    ],
)
def test_what_cannot_be_committed_is_not_applied(
    repository: Stage, before: str, flags: tuple[str, ...], words: str
) -> None:
    made(repository, "echo x > new")
    subprocess.run(["bash", "-ec", before], cwd=repository.demo, check=True)
    done = repository.call("apply", "last", "--commit", *flags)
    assert done.status == 2
    assert words in done.err
    assert not (repository.demo / "new").exists()
    assert repository.call("apply", "last").status == 0


def test_git_that_does_not_know_who_commits(repository: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    made(repository, "echo x > new")
    for name in WHO:
        monkeypatch.delenv(name)
    git(repository.demo, "config", "user.useConfigOnly", "true")
    done = repository.call("apply", "last", "--commit")
    assert (done.status, "git does not know who you are" in done.err) == (2, True)
    assert not (repository.demo / "new").exists()


def test_words_for_no_commit_are_refused(repository: Stage) -> None:
    made(repository, "echo x > new")
    assert "-m and --branch are for --commit" in repository.call("apply", "last", "-m", "x").err


@pytest.mark.parametrize("tool", [["git", "apply"], ["git", "apply", "--check", "-R"]])
def test_a_patch_holds_everything(repository: Stage, tmp_path: Path, tool: list[str]) -> None:
    """Binary files and renames too; git makes of it what apply makes."""
    demo = repository.demo
    (demo / "blob").write_bytes(bytes(range(256)) * 9)
    (demo / "gone").write_bytes(b"\0gone")
    (demo / "old").write_text("".join(f"{number}\n" for number in range(50)))
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", demo, copy], check=True)
    made(
        repository,
        f"{odd_files('bot')}; printf 'x\\0y' >> blob; rm gone; mv old new; sed -i 3d new; head -c 3000000 /dev/zero "
        "> large; printf '\\0' > tiny; chmod +x blob; mkdir empty",
    )
    patch = tmp_path / "out.patch"
    done = repository.call("apply", "last", "--patch", str(patch))
    assert done.status == 0, done.err
    assert not (demo / "new").exists()
    assert b"rename from old\nrename to new\n" in patch.read_bytes()
    again = repository.call("apply", "last", "--patch", str(patch))
    assert (again.status, f"{patch} is there already" in again.err) == (2, True)
    assert repository.call("apply", "last", "--flagged").status == 0
    there = demo if "-R" in tool else copy
    subprocess.run([*tool, str(patch)], cwd=there, check=True)
    (demo / "empty").rmdir()  # git has no words for it
    subprocess.run(["diff", "-r", "--no-dereference", "-x", ".git", demo, copy if there is copy else demo], check=True)
    assert (demo / "blob").stat().st_mode & 0o777 == 0o755


def test_a_patch_of_files_that_became_folders_also_after_an_undo(repository: Stage, tmp_path: Path) -> None:
    demo, copy = repository.demo, tmp_path / "copy"
    (demo / "folder").mkdir()
    (demo / "folder" / "in").write_text("in\n")
    (demo / "file").write_text("file\n")
    (demo / "link").symlink_to("file")
    subprocess.run(["cp", "-a", demo, copy], check=True)
    made(repository, "rm file; mkdir file; echo y > file/y; rm -r folder; echo f > folder; rm link; echo l > link")
    for name in ("before", "after"):
        done = repository.call("apply", "last", "--patch", str(tmp_path / name), "--json")
        assert (done.status, done.result["left"]) == (0, []), done.err
        for verb in ("apply", "undo"):
            assert repository.call(verb, "last").status == 0
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    git(copy, "apply", str(tmp_path / "after"))
    assert repository.call("apply", "last").status == 0
    subprocess.run(["diff", "-r", "--no-dereference", "-x", ".git", demo, copy], check=True)


def test_a_patch_that_would_hold_a_hidden_value_is_not_left(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "wonderful-0123456789abcdef")
    made(stage, "printf 'a\\0wonderful-%s' 0123456789abcdef > blob")
    done = stage.call("apply", "last", "--patch", str(tmp_path / "p"))
    shown = stage.call("diff", "last")
    assert not (tmp_path / "p").exists()
    assert {done.status, shown.status} == {2}
    assert "the diff holds what is to be hidden" in done.err


def test_hunks_at_the_question_and_the_rest_later(repository: Stage) -> None:
    """The whole way: two hunks in a file of an odd name, one is chosen, the other applied later by command."""
    name = "-new\nline \udcff"
    odd = repository.demo / name
    odd.write_text("".join(f"{number}\n" for number in range(1, 31)))
    command = "sed -i 's/^2$/two/; s/^28$/28th/' ./-new*"
    model = repository.script(say("shell", command=command), DONE, DONE)
    shell = Terminal(repository, "run", "edit", "--folder", str(repository.demo), "--model", model)
    shell.until(QUESTION)
    assert b"1 file changed, 2 lines added, 2 removed" in shell.seen
    shell.type(b"?\n")
    shell.until(QUESTION)
    shell.type(b"f\n")
    shell.until(b"(1/2) Apply this hunk? ")
    shell.type(b"n\n")
    shell.until(b"(2/2) Apply this hunk? ")
    shell.type(b"y\n")
    shell.until(QUESTION)
    assert b"applied; stockade undo takes it back" in shell.seen
    shell.type(b"n\n")
    assert shell.status() == 0
    text = odd.read_text()
    assert ("28th\n" in text, "two\n" in text) == (True, False)
    assert repository.call("runs", "apply", "last").status == 0
    assert "two\n" in odd.read_text()
    assert repository.call("undo", "last").status == 0
    assert odd.read_text() == "".join(f"{number}\n" for number in range(1, 31))


def test_some_of_the_changes_by_path_and_by_hunk_later(repository: Stage) -> None:
    demo = repository.demo
    (demo / "old").write_text("".join(f"{number}\n" for number in range(1, 31)))
    made(
        repository,
        f"mkdir -p d/e; echo 1 > d/e/x; echo 2 > d/y; mv old moved; {odd_files('bot')}; sed -i 's/^a/A/' data.csv",
    )
    wrong = repository.call("apply", "last", "--only", "no/such")
    assert (wrong.status, "nothing was changed at no/such" in wrong.err) == (2, True)
    assert repository.call("apply", "last", "--only", "d/e/", "--only", b"not-\xff-utf8", "--only", "old").status == 0
    assert sorted(os.listdir(os.fsencode(demo))) == sorted(
        [b".git", b".gitignore", b"data.csv", b"d", b"moved", b"not-\xff-utf8"]
    )
    assert [path.name for path in (demo / "d").iterdir()] == ["e"]
    refused = repository.call("apply", "last", "--files")
    assert (refused.status, "--files asks on a terminal" in refused.err) == (2, True)
    shell = Terminal(repository, "apply", "last", "-f", "--only", "data.csv", "--only", "d")
    shell.until(b"(1/2)")
    shell.until(b"Apply this? ")
    shell.type(b"n\n")
    shell.until(b"(1/1) Apply this hunk? ")
    shell.type(b"really? why so\n")
    shell.until(b"And this one?")
    shell.type(b"y\n")
    assert shell.status() == 0
    assert b"stockade runs resume" in shell.seen
    assert (demo / "data.csv").read_text() == "A\nb\nc\n"
    assert not (demo / "d" / "y").exists()
    assert repository.call("apply", "last").status == 0
    assert set(ODD) < set(os.listdir(os.fsencode(demo)))
    assert repository.call("undo", "last").status == 0
    assert repository.call("apply", "last", "--only", "d/y", "--only", "moved").status == 0  # of what was undone too
    shell = Terminal(repository, "apply", "last", "-f", "--only", "data.csv")
    shell.until(b"(1/1) Apply this hunk? ")
    shell.type(b"y\n")
    assert shell.status() == 0
    assert [(demo / name).exists() for name in ("d/y", "d/e", "moved", "old")] == [True, False, True, False]
    assert "+++ b/d/e/x" in repository.call("diff", "last").out
    assert repository.call("apply", "last").status == repository.call("undo", "last").status == 0
    assert ((demo / "d").exists(), (demo / "data.csv").read_text()) == (False, "a\nb\nc\n")


def test_a_comment_on_a_hunk_reaches_the_bot(repository: Stage) -> None:
    model = repository.script(say("shell", command="echo x > new"), DONE, say("finish", answer="because"))
    shell = Terminal(repository, "run", "edit", "--folder", str(repository.demo), "--model", model)
    shell.until(QUESTION)
    shell.type(b"f\n")
    shell.until(b"Apply this? ")
    shell.type(b"why an x?\n")
    shell.until(b"And this one?")
    shell.type(b"n\n")
    shell.until(QUESTION)
    assert b"because" in shell.seen
    shell.type(b"x\n")
    assert shell.status() == 0
    events = [json.loads(line) for line in repository.call("runs", "show", "last", "--json").out.splitlines()]
    assert [event["task"] for event in events if event["type"] == "run_resumed"] == ["About new: why an x?"]


def test_both_sides_beside_each_other_and_a_pager(repository: Stage, tmp_path: Path) -> None:
    made(repository, "sed -i 's/b/B/' data.csv")
    shell = Terminal(repository, "diff", "last", "-y", COLUMNS="100")
    assert shell.status() == 0
    (row,) = (line for line in shell.seen.decode().splitlines() if "|" in line)
    assert "b" in row.split("|")[0]
    assert "B" in row.split("|")[1]
    for name, wants in (("less", b"\x1b["), ("delta", b"diff --git a/data.csv b/data.csv\n")):
        pager = tmp_path / name
        pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/seen\n")
        pager.chmod(0o755)
        shell = Terminal(repository, "diff", "last", PAGER=f"{pager} -R")
        assert shell.status() == 0
        assert wants in (tmp_path / "seen").read_bytes()
        assert b"+B" in (tmp_path / "seen").read_bytes()
    for named, words in (("no-such-pager", b"there is no pager"), ('less "x', b"cannot be read: No closing quotation")):
        shell = Terminal(repository, "diff", "last", PAGER=named)
        assert shell.status() == 0
        assert words in shell.seen


def worktrees(stage: Stage) -> list[Path]:
    return sorted(stage.demo.parent.glob("demo-*"))


def test_a_run_in_a_worktree_of_its_own(repository: Stage) -> None:
    demo = repository.demo
    (demo / "sub").mkdir()
    (demo / "sub" / "x").write_text("x\n")
    git(demo, "add", ".")
    git(demo, "commit", "-qm", "sub")
    (demo / "sub" / "x").write_text("not committed\n")
    model = repository.script(say("shell", command="cat x; echo bot > new"), DONE, DONE)
    folder = ("--folder", str(demo / "sub"), "--worktree")
    done = repository.call("run", "x", *folder, "--model", model, "--no-input", "--json")
    assert done.status == 0, done.err
    (place,) = worktrees(repository)
    assert f"the worktree is {place}, on the branch stockade/" in done.err
    assert "not committed" not in done.out
    assert repository.call("apply", "last", "--commit").status == 0
    assert (place / "sub" / "new").read_text() == "bot\n"
    assert not (demo / "sub" / "new").exists()
    assert git(place, "log", "-1", "--name-only", "--format=%s") == b"x\n\nsub/new\n"
    branch = git(place, "symbolic-ref", "--short", "HEAD").decode().strip()
    assert branch.startswith("stockade/")
    assert git(demo, "log", "--format=%s", f"main..{branch}") == b"x\n"
    assert git(demo, "status", "--porcelain") == b" M sub/x\n"


def test_a_worktree_in_which_nothing_happened_is_removed(repository: Stage) -> None:
    model = repository.script(DONE, DONE)
    flags = ("--folder", str(repository.demo), "--worktree", "--model", model, "--no-input")
    assert repository.call("run", "x", *flags).status == 0
    assert worktrees(repository) == []
    assert git(repository.demo, "branch", "--list", "stockade/*") == b""


def in_a_worktree(stage: Stage, command: str) -> tuple[str, Path]:
    """A run there; its id and the place."""
    model = stage.script(say("shell", command=command), DONE, DONE)
    flags = ("--folder", str(stage.demo), "--worktree", "--model", model, "--no-input", "--json")
    before = set(worktrees(stage))
    done = stage.call("run", "x", *flags)
    assert done.status == 0, done.err
    (place,) = set(worktrees(stage)) - before
    return str(done.result["run"]), place


def branches(stage: Stage) -> bytes:
    return git(stage.demo, "branch", "--list", "stockade/*", "--format=%(refname:short)")


def test_the_worktree_of_a_run_goes_with_what_is_thrown_away(repository: Stage) -> None:
    run, place = in_a_worktree(repository, "echo x > new")
    inside = repository.call("discard", run, folder=place)
    assert (inside.status, f"the worktree {place} stays: you are in it" in inside.err) == (0, True), inside.err
    assert place.exists()
    assert repository.call("runs", "rm", run).status == 0
    assert (worktrees(repository), branches(repository)) == ([], b"")
    run, place = in_a_worktree(repository, "echo x > new")
    assert repository.call("discard", run).status == 0
    assert (worktrees(repository), branches(repository)) == ([], b"")
    assert repository.call("runs", "show", run).status == 0


def test_what_is_not_committed_in_a_worktree_stays_and_a_branch_with_commits(repository: Stage) -> None:
    dirty, place = in_a_worktree(repository, "echo x > new")
    assert repository.call("apply", dirty).status == 0
    kept = repository.call("runs", "rm", dirty)
    assert (kept.status, f"the worktree {place} stays: not all in it is committed" in kept.err) == (0, True), kept.err
    assert (place / "new").exists()
    run, place = in_a_worktree(repository, "echo x > new")
    assert repository.call("apply", run, "--commit").status == 0
    pruned = repository.call("runs", "prune", "--keep", "0", "--yes")
    assert f"the worktree {place} is removed; its branch stockade/" in pruned.err
    assert not place.exists()
    assert place.name.removeprefix("demo-").encode() in branches(repository)


def test_no_worktree_goes_in_which_another_run_works(repository: Stage) -> None:
    first, place = in_a_worktree(repository, "echo x > new")
    model = repository.script(say("shell", command="echo y > newer"), DONE, DONE)
    done = repository.call("run", "y", "--folder", str(place), "--model", model, "--no-input")
    assert done.status == 0, done.err
    kept = repository.call("runs", "rm", "--force", first)
    assert (kept.status, f"the worktree {place} stays: another run works there" in kept.err) == (0, True), kept.err
    assert place.exists()


def test_a_worktree_has_the_ignored_files_that_worktreeinclude_names(repository: Stage) -> None:
    demo = repository.demo
    (demo / ".gitignore").write_text("build/\n.env\n")
    (demo / ".worktreeinclude").write_text("/.env\nbuild/keys/\nnot-ignored\n")
    (demo / "build/keys").mkdir(parents=True)
    for name in (".env", "build/keys/a", "build/b"):
        (demo / name).write_text(f"{name}\n")
    git(demo, "add", ".")
    git(demo, "commit", "-qm", "two")
    (demo / "not-ignored").write_text("x\n")
    said = say("shell", command="cat .env build/keys/a; ls build not-ignored")
    done = repository.run(said, DONE, flags=("--worktree", "--no-input", "-v"))
    assert ".env\nbuild/keys/a\n" in done.out + done.err
    assert "keys\n" in done.out + done.err
    assert "b\nkeys" not in done.out + done.err
    assert "cannot access 'not-ignored'" in done.out + done.err
    assert [path.name for path in demo.parent.glob("demo*")] == ["demo"], done.err  # nothing of it was work
    assert repository.run(say("shell", command="echo 1 > .env"), DONE, flags=("--worktree", "--apply")).status == 0
    assert len(list(demo.parent.glob("demo*"))) == 2
    assert (demo / ".env").read_text() == ".env\n"


def test_no_worktree_of_what_is_no_repository(stage: Stage) -> None:
    for before, words in (("true", "is in no git repository"), ("git init -q", "nothing is committed in ")):
        subprocess.run(["bash", "-ec", before], cwd=stage.demo, check=True)
        done = stage.run(DONE, flags=("--worktree",))
        assert (done.status, words in done.err) == (2, True), done.err
    assert "begins a run" in stage.call("run", "x", "-c", "--worktree").err
    assert worktrees(stage) == []
