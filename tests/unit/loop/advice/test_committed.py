"""What a task wants of git, held against a real repository."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from stockade.loop.advice.committed import lacking
from stockade.loop.advice.said import Said
from tests.unit.loop.helpers import DeafSandbox, HereSandbox

pytestmark = pytest.mark.anyio
TO_COMMIT = "Make git ignore all .log files, and commit that with the message: Ignore logs"
Git = Callable[..., None]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """A repository with one commit of long ago."""

    def run(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    run("init", "-q", "-b", "main")
    (tmp_path / "a.txt").write_text("a")
    run("add", "-A")
    when = {"GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, "commit", "-qm", "First"], cwd=tmp_path, check=True, env=when)
    return run


async def said(task: str, folder: Path, at: float | None = None) -> list[Said]:
    found = await lacking(task, time.time() - 60 if at is None else at, HereSandbox(folder))
    return [Said.of(line) for line in found]


async def test_a_change_that_is_not_committed(git: Git, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    way = "git add .gitignore && git commit -m 'Ignore logs'"
    assert await said(TO_COMMIT, tmp_path) == [Said(".gitignore is not committed.", way)]
    git("add", "-A")
    git("commit", "-qm", "Ignore logs")
    assert await said(TO_COMMIT, tmp_path) == []


async def test_a_commit_that_was_never_made(git: Git, tmp_path: Path) -> None:
    assert await said("Fix it and commit.", tmp_path) == [Said("Nothing is committed.")]
    assert await said("Fix it and commit.", tmp_path, at=0) == []


async def test_no_command_where_words_would_need_quotes(git: Git, tmp_path: Path) -> None:
    (tmp_path / "with blank").write_text("x")
    assert [one.command for one in await said(TO_COMMIT, tmp_path)] == [""]
    (tmp_path / "with blank").rename(tmp_path / "b.txt")
    assert [one.command for one in await said('Commit it. Then commit with the message: $(rm -rf "x")', tmp_path)] == [
        ""
    ]
    assert [one.command for one in await said("Commit all of it", tmp_path)] == [""]


@pytest.mark.parametrize(
    ("task", "line", "made"),
    [
        (
            "Give the current commit the git tag v1.0.",
            Said("There is no tag v1.0 in the repository.", "git tag v1.0"),
            ("tag", "v1.0"),
        ),
        (
            "Tag it as 2.1-rc1",
            Said("There is no tag 2.1-rc1 in the repository.", "git tag 2.1-rc1"),
            ("tag", "2.1-rc1"),
        ),
        (
            "Create a new branch called fix/login here.",
            Said("There is no branch fix/login in the repository.", "git branch fix/login"),
            ("branch", "fix/login"),
        ),
    ],
)
async def test_a_name_that_is_not_there(git: Git, tmp_path: Path, task: str, line: Said, made: tuple[str, ...]) -> None:
    assert await said(task, tmp_path) == [line]
    git(*made)
    assert await said(task, tmp_path) == []


@pytest.mark.parametrize(
    "task",
    [
        "How many commits has this repository?",
        "Bring back the version of the last commit.",
        "Change a.txt, but do not commit it. Then stop.",
        "Fix a.txt without committing; and never commit.",
        "Replace the h1 tag with h2 in a.html.",
        "Delete the tag v1.0.",
        "Put the full hash of the latest commit into commit.txt.",
        "Which branch holds a.txt?",
    ],
)
async def test_what_asks_for_none_of_it(git: Git, tmp_path: Path, task: str) -> None:
    (tmp_path / "new.txt").write_text("x")
    assert await said(task, tmp_path) == []


async def test_without_a_repository_or_a_sandbox_that_answers_nothing_is_said(tmp_path: Path) -> None:
    assert await said(TO_COMMIT, tmp_path) == []
    assert await lacking(TO_COMMIT, 0, DeafSandbox()) == []


async def test_the_first_commit_of_all(tmp_path: Path) -> None:
    await anyio.run_process(["git", "init", "-q"], cwd=tmp_path)
    (tmp_path / "a.txt").write_text("a")
    way = "git add a.txt && git commit -m 'Start'"
    assert await said("Add a.txt and commit with the message 'Start'.", tmp_path) == [
        Said("a.txt is not committed.", way)
    ]


@pytest.mark.parametrize(
    "words", ["create ", "create a branch ", "message a ", "tag it as ", "and commit ", "no ", "v1.0-"]
)
async def test_a_long_task_is_read_in_time(words: str) -> None:
    """A pattern that begins anew at each word would take hours."""
    with anyio.fail_after(10):
        assert isinstance(await lacking(words * 20_000, 0, DeafSandbox()), list)
