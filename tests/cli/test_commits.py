"""What a bot commits inside becomes commits at apply; what else it did to the repository does not."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, Stage
from tests.cli.test_keeping import WHO, git, made
from tests.support.aimed import killed_at


@pytest.fixture(autouse=True)
def _known_to_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WHO.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["sha1", "sha256"])
def repository(stage: Stage, request: pytest.FixtureRequest) -> Stage:
    git(stage.demo, "init", "-q", "-b", "main", f"--object-format={request.param}")
    (stage.demo / "kept").write_text("kept\n")
    git(stage.demo, "add", ".")
    git(stage.demo, "commit", "-qm", "one")
    return stage


def told(folder: Path, *arguments: str) -> str:
    return git(folder, *arguments).decode().strip()


def test_commits_made_inside_become_commits_and_are_taken_back(repository: Stage) -> None:
    demo = repository.demo
    before = told(demo, "rev-parse", "HEAD")
    hook = "printf '#!/bin/sh\\ntouch /tmp/ran' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout; "
    made(
        repository,
        f"export GIT_AUTHOR_NAME=bot GIT_AUTHOR_EMAIL=b@x GIT_COMMITTER_NAME=bot GIT_COMMITTER_EMAIL=b@x; {hook}"
        "git config core.pager 'touch ran'; echo 2 > new; git add new; git commit -qm two; "
        "git switch -qc feature/x; git rm -q kept; git commit -qm three; git tag v1",
    )
    shown = repository.call("diff", "last").out
    assert "objects/" not in shown
    assert ".git/index" not in shown
    applied = repository.call("apply", "last", "--flagged")
    assert applied.status == 1
    for name in (".git/hooks/post-checkout", ".git/config"):
        assert f"not applied: {name}: git's configuration and hooks are never applied" in applied.err
    assert told(demo, "log", "--format=%an %s") == "bot three\nbot two\nx one"
    assert told(demo, "symbolic-ref", "HEAD") == "refs/heads/feature/x"
    assert told(demo, "log", "-1", "--format=%s", "main") == "two"
    assert told(demo, "rev-parse", "v1") == told(demo, "rev-parse", "HEAD")
    assert told(demo, "status", "--porcelain") == ""
    git(demo, "fsck", "--strict")
    assert not (demo / ".git/hooks/post-checkout").exists()
    assert repository.call("undo", "last").status == 0
    assert told(demo, "rev-parse", "HEAD") == before
    assert told(demo, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert told(demo, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert told(demo, "status", "--porcelain") == ""


def test_commits_inside_are_the_users_until_the_bot_says_other(
    repository: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user's own settings say, as the weakest inside: tests of programs that call git set their own."""
    name = 'Zoë "Z" back\\slash; #'
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "mine"))
    git(repository.demo, "config", "--global", "user.name", name)
    git(repository.demo, "config", "--global", "user.email", "zoe@x.org")
    made(
        repository,
        "echo 2 > new; git add new; git commit -qm two; git config --global user.name bot; "
        "echo 3 > new; git commit -qam three; git config user.email b@x; echo 4 > new; git commit -qam four",
    )
    assert "not applied: .git/config" in repository.call("apply", "last").err
    said = told(repository.demo, "log", "-3", "--format=%s %an <%ae>")
    assert said == f"four bot <b@x>\nthree bot <zoe@x.org>\ntwo {name} <zoe@x.org>"


def test_a_stash_and_what_was_fetched_stay_inside(repository: Stage) -> None:
    """By name too: nothing would be where they point. What was staged is edited."""
    demo = repository.demo
    made(
        repository,
        f"{BOT}; echo s >> kept; git stash -q; git commit -qm far --allow-empty;"
        " git update-ref refs/remotes/o/far HEAD; git reset -q --hard HEAD~; echo staged > staged; git add staged;"
        " git pack-refs --all",
    )
    applied = repository.call("apply", "last", "--flagged")
    assert applied.status == 1
    assert "not applied: .git/packed-refs: only branches, tags and HEAD are applied" in applied.err
    assert "not applied: .git/refs/heads/main: git has packed it inside" in applied.err
    assert told(demo, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert told(demo, "status", "--porcelain") == "?? new\n?? staged"
    assert told(demo, "stash", "list") == ""
    git(demo, "fsck", "--strict")


def test_a_new_repository_comes_without_its_configuration(repository: Stage) -> None:
    """By name alone, and git works in it."""
    demo = repository.demo
    made(
        repository,
        f"{BOT}; git init -q n; cd n; echo x > x; git add x; git commit -qm nested; git config core.pager 'touch ran'",
    )
    assert repository.call("apply", "last").status == 1
    assert not (demo / "n/.git").exists()
    repository.call("apply", "last", "--flagged")
    assert told(demo / "n", "log", "--format=%s") == "nested"
    assert told(demo / "n", "status", "--porcelain") == ""
    assert not (demo / "n/.git/config").exists()


BOT = (
    "export GIT_AUTHOR_NAME=bot GIT_AUTHOR_EMAIL=b@x GIT_COMMITTER_NAME=bot GIT_COMMITTER_EMAIL=b@x; "
    "echo 2 > new; git add new; git commit -qm two"
)


@pytest.mark.parametrize("packs", [False, True])
def test_a_branch_that_moved_here_since_is_refused_by_name(repository: Stage, packs: bool) -> None:
    demo = repository.demo
    if packs:
        git(demo, "pack-refs", "--all")
    made(repository, BOT)
    git(demo, "commit", "-q", "--allow-empty", "-m", "mine")
    if packs:
        git(demo, "pack-refs", "--all")
    refused = repository.call("apply", "last")
    assert (refused.status, "'.git/refs/heads/main'" in refused.err) == (1, True)
    assert told(demo, "log", "-1", "--format=%s") == "mine"
    assert not (demo / "new").exists()
    assert repository.call("apply", "last", "--force").status == 0
    assert told(demo, "log", "-1", "--format=%s") == "two"


@pytest.mark.parametrize(
    ("trick", "why"),
    [
        ("git rev-parse HEAD^{tree} > t; cp t .git/refs/heads/main; rm t", "git does not take"),
        ("printf '%040d\\n' 7 > .git/refs/heads/main", "git does not take"),
        (
            "p=$(find .git/objects -type f -newer new); chmod +w $p; for f in $p; do echo x > $f; done",
            "git does not take",
        ),
        ("rm .git/refs/heads/main; ln -s /etc/passwd .git/refs/heads/main", "a symlink to an absolute path"),
        ("rm .git/refs/heads/main; ln -s ../../HEAD .git/refs/heads/main", "not what git writes"),
        ("echo 'ref: refs/heads/other' > .git/refs/heads/main", "not what git writes"),
        ("echo 'ref: ../../../x' > .git/HEAD", "not what git writes"),
        ("cp .git/refs/heads/main .git/refs/heads/-x..y", "not what git writes"),
    ],
)
def test_what_is_no_commit_never_becomes_a_branch(stage: Stage, trick: str, why: str) -> None:
    demo = stage.demo
    git(demo, "init", "-q", "-b", "main")
    (demo / "kept").write_text("kept\n")
    git(demo, "add", ".")
    git(demo, "commit", "-qm", "one")
    before = told(demo, "rev-parse", "HEAD")
    made(stage, f"{BOT}; {trick}")
    refused = stage.call("apply", "last", "--flagged", "--force")
    assert refused.status
    assert why in refused.err
    assert told(demo, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert not (demo / ".git/refs/heads/main").is_symlink()
    if "-x..y" not in trick and "HEAD" not in trick.split(">")[-1]:
        assert told(demo, "rev-parse", "HEAD") == before
    git(demo, "fsck", "--strict")


def test_git_takes_nothing_from_places_that_the_bot_names(stage: Stage, tmp_path: Path) -> None:
    """An `alternates` of the bot's would have the host's git look for objects in a repository of the bot's choosing."""
    private = tmp_path / "private"
    git(tmp_path, "init", "-q", "-b", "main", str(private))
    (private / "secret").write_text("secret\n")
    git(private, "add", ".")
    git(private, "commit", "-qm", "secret")
    secret = told(private, "rev-parse", "HEAD")
    git(stage.demo, "init", "-q", "-b", "main")
    git(stage.demo, "commit", "-q", "--allow-empty", "-m", "one")
    names = f"echo {shlex.quote(str(private))}/.git/objects > .git/objects/info/alternates"
    made(stage, f"{names}; mkdir -p .git/refs/heads; echo {secret} > .git/refs/heads/main")
    refused = stage.call("apply", "last", "--flagged")
    assert (refused.status, "git does not take the bot's commits" in refused.err) == (2, True)
    assert not (stage.demo / ".git/objects/info/alternates").exists()
    missing = subprocess.run(["git", "cat-file", "-e", secret], cwd=stage.demo, check=False, capture_output=True)
    assert missing.returncode


@pytest.mark.root
def test_the_settings_of_another_users_repository_run_nothing(stage: Stage, tmp_path: Path) -> None:
    """git would obey them where GIT_DIR names it: that is shown first."""
    demo, ran = stage.demo, tmp_path / "ran"
    git(demo, "init", "-q", "-b", "main")
    (demo / "kept").write_text("kept\n")
    git(demo, "add", ".")
    git(demo, "commit", "-qm", "one")
    with (demo / ".git/config").open("a") as file:
        file.write(f'[protocol "ext"]\n\tallow = always\n[url "ext::touch {ran} "]\n\tinsteadOf = /\n')
    subprocess.run(["chown", "-R", "1234:1234", demo], check=True)
    subprocess.run(
        ["git", "fetch", "-q", f"{tmp_path}/x", "main"], env={**os.environ, "GIT_DIR": f"{demo}/.git"}, cwd="/",
        check=False, capture_output=True,
    )  # fmt: skip
    ran.unlink()
    made(stage, BOT)
    refused = stage.call("apply", "last")
    assert refused.status == 2
    assert "git does not take the bot's commits: detected dubious ownership" in refused.err
    assert not ran.exists()
    assert stage.call("apply", "last", "--only", "new").status == 0
    assert not ran.exists()


def test_what_is_staged_here_stays_staged(repository: Stage) -> None:
    demo = repository.demo
    (demo / "mine").write_text("mine\n")
    git(demo, "add", "mine")
    made(repository, BOT.replace("add new; git commit", "add new; git commit new"))
    assert repository.call("apply", "last").status == 0
    assert told(demo, "status", "--porcelain") == "A  mine"
    assert told(demo, "show", "--name-only", "--format=", "HEAD") == "new"


@pytest.fixture
def linked(stage: Stage) -> Stage:
    """The folder is a worktree of a repository beside it."""
    main = stage.demo.parent / "main"
    git(stage.demo.parent, "init", "-q", "-b", "main", str(main))
    (main / "kept").write_text("kept\n")
    git(main, "add", ".")
    git(main, "commit", "-qm", "one")
    subprocess.run(["rm", "-rf", str(stage.demo)], check=True)
    git(main, "worktree", "add", "-q", "-b", "side", str(stage.demo))
    return stage


def test_a_worktree_is_committed_to_in_its_repository(linked: Stage) -> None:
    demo, main = linked.demo, linked.demo.parent / "main"
    made(
        linked,
        f"{BOT}; git status --porcelain > said; git log --format=%s >> said; echo x > {main}/.git/hooks/pre-push;"
        f" echo x > {main}/.git/worktrees/demo/config.worktree; git config a.b c",
    )
    was = (main / ".git/config").read_bytes()
    applied = linked.call("apply", "last", "--flagged")
    assert (demo / "said").read_text() == "?? said\ntwo\none\n"
    assert applied.err.count("git's configuration and hooks are never applied") == 3
    assert (main / ".git/config").read_bytes() == was
    assert not list((main / ".git/worktrees").rglob("config.worktree"))
    assert told(demo, "log", "--format=%s") == "two\none"
    assert told(main, "log", "--format=%s", "side") == "two\none"
    assert told(demo, "status", "--porcelain") == "?? said"
    assert told(main, "status", "--porcelain") == ""
    assert not (main / ".git/hooks/pre-push").exists()
    git(main, "fsck", "--strict")
    assert linked.call("undo", "last").status == 0
    assert told(main, "log", "--format=%s", "side") == "one"
    assert told(demo, "status", "--porcelain") == ""


def test_a_branch_that_is_checked_out_elsewhere_stays(linked: Stage) -> None:
    demo, main = linked.demo, linked.demo.parent / "main"
    made(linked, f"{BOT}; git update-ref refs/heads/main HEAD")
    refused = linked.call("apply", "last")
    assert (refused.status, "'refs/heads/main' is checked out in another worktree" in refused.err) == (2, True)
    assert told(main, "log", "--format=%s", "main") == "one"
    assert told(demo, "log", "--format=%s", "side") == "one"


def test_what_a_bot_did_not_commit_in_a_worktree_can_be(linked: Stage) -> None:
    made(linked, "echo more > more")
    done = linked.call("apply", "last", "--commit", "-m", "mine")
    assert (done.status, told(linked.demo, "log", "--format=%s", "side")) == (0, "mine\none"), done.err


def test_a_submodule_by_itself(stage: Stage) -> None:
    top, library = stage.demo.parent / "top", stage.demo.parent / "library"
    for one in (top, library):
        git(stage.demo.parent, "init", "-q", "-b", "main", str(one))
        git(one, "commit", "-q", "--allow-empty", "-m", "one")
    git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "ext/sub")
    script = stage.script(say("shell", command=f"{BOT}; git status --porcelain > said"), DONE)
    done = stage.call("run", "x", "--model", script, "--folder", str(top / "ext/sub"), "--no-input")
    assert done.status == 0, done.err
    assert stage.call("apply", "last").status == 0
    assert (top / "ext/sub/said").read_text() == "?? said\n"
    assert told(top / "ext/sub", "log", "--format=%s") == "two\none"


def test_a_repository_with_submodules(stage: Stage) -> None:
    library = stage.demo.parent / "library"
    for one in (stage.demo, library):
        git(stage.demo.parent, "init", "-q", "-b", "main", str(one))
        git(one, "commit", "-q", "--allow-empty", "-m", "one")
    git(stage.demo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub")
    git(stage.demo, "commit", "-qm", "sub")
    made(stage, f"{BOT}; cd sub; git log --format=%s > ../said")
    assert stage.call("apply", "last").status == 0
    assert told(stage.demo, "log", "-1", "--format=%s") == "two"
    assert (stage.demo / "said").read_text() == "one\n"


@pytest.mark.parametrize("lie", ["folder", "worktree", "elsewhere", "more"])
def test_a_file_that_lies_shows_nothing(stage: Stage, tmp_path: Path, lie: str) -> None:
    """An archive, or a bot, wrote it: it names what is the user's and knows nothing of the folder."""
    private = tmp_path / "private"
    git(tmp_path, "init", "-q", "-b", "main", str(private))
    git(private, "commit", "-q", "--allow-empty", "-m", "secret")
    git(private, "worktree", "add", "-q", str(tmp_path / "theirs"))
    names = {"folder": "", "worktree": "/worktrees/theirs", "elsewhere": "/../../..", "more": "\ngitdir: x"}
    (stage.demo / ".git").write_text(f"gitdir: {private}/.git{names[lie]}\n")
    script = stage.script(say("shell", command=f"ls {private} {tmp_path} > said 2>&1; git log >> said 2>&1"), DONE)
    done = stage.call("run", "x", "--model", script, "--folder", str(stage.demo), "--apply", "--no-input")
    assert "secret" not in (stage.demo / "said").read_text()
    assert "No such file or directory" in (stage.demo / "said").read_text()
    assert f"{stage.demo}/.git" in done.err


@pytest.mark.parametrize("step", ["staged", "decided", "place", "placed", "done"])
def test_killed_while_commits_are_applied(repository: Stage, step: str) -> None:
    demo = repository.demo
    made(repository, f"{BOT}; echo 3 > kept; git commit -qam three")
    assert killed_at(step, 0, ["apply", "last"], repository.environment())
    git(demo, "fsck", "--strict")
    assert told(demo, "log", "-1", "--format=%s") in ("one", "three")
    assert repository.call("apply", "last").status == (2 if step == "done" else 0)  # 2: it was already
    assert told(demo, "log", "--format=%s") == "three\ntwo\none"
    assert told(demo, "status", "--porcelain") == ""
    assert repository.call("undo", "last").status == 0
    assert told(demo, "log", "--format=%s") == "one"
    assert told(demo, "status", "--porcelain") == ""
