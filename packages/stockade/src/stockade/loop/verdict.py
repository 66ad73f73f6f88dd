"""Whether a check passes, judged where the bot cannot reach: in a fresh sandbox, on what it wrote.

Nothing of the bot's own sandbox has a part in it: not its shell, variables, processes or files outside of its folders.
What stands between the bot and a wrong verdict are the files that a check itself obeys; those that the bot changed are
named, and the user may protect them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from stockade.core.errors import UsageError
from stockade.core.events import CheckFinished
from stockade.core.ports import Sandbox
from stockade_sandbox.port import Freezable, OnNetwork
from stockade_sandbox.results import Change, Chunk, CommandOutput, ExecResult, FolderLayer

Judge = Callable[
    [str, Sequence[FolderLayer], Sequence[str | None], OnNetwork | None, float | None], Awaitable[ExecResult]
]
"""Runs a command on what the layers hold, as their snapshots say, for so many seconds. Raises SandboxFailed."""

MAX_EQUAL_FAILURES = 3
_SHELL = (
    'export PYTHONPYCACHEPREFIX=/tmp/.pycache; exec 2>&1; [ -x /bin/bash ] && exec /bin/bash -c "$1"; exec sh -c "$1"'
)

TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs", "testdata", ".github", ".gitlab", ".circleci"})
TEST_FILES = (
    "test_*", "*_test.*", "*.test.*", "*.spec.*", "*_spec.rb", "*Test.java", "*Tests.cs", "conftest.py", "pytest.ini",
    ".pytest.ini", "tox.ini", "noxfile.py", "setup.cfg", "setup.py", "pyproject.toml", ".coveragerc",
    "sitecustomize.py", "usercustomize.py", "*.pth", "Makefile", "makefile", "GNUmakefile", "*.mk", "justfile",
    "Justfile", "Taskfile.y*ml", "package.json", "jest.config.*", "vitest.config.*", "karma.conf.*", ".mocharc.*",
    "babel.config.*", "tsconfig*.json", ".npmrc", "Cargo.toml", "build.rs", "go.mod", "CMakeLists.txt", "pom.xml",
    "build.gradle*", "Rakefile", "Gemfile", ".rspec", "phpunit.xml*", ".gitlab-ci.yml", "azure-pipelines.yml",
    "Jenkinsfile", ".travis.yml",
)  # fmt: skip
"""What decides which tests there are, and how they are run: of the runners of common languages, by name."""


def argv_of(command: str) -> list[str]:
    """Bash where there is one, with one stream in exact order; its status comes from the agent's `waitpid`.

    Python reads the sources, not what a bot left as their compiled form.
    """
    return ["/bin/sh", "-c", _SHELL, "sh", command]


def observed(result: ExecResult) -> CommandOutput:
    """What a check said, as a command's."""
    data = result.stdout + result.stderr
    return CommandOutput(
        exit_code=result.exit_code,
        chunks=(Chunk.of("stdout", data),) if data else (),
        timed_out=result.timed_out,
        truncated_bytes=result.truncated_bytes,
    )


@asynccontextmanager
async def standing_still(sandbox: Sandbox) -> AsyncIterator[None]:
    """Inside, nothing in it writes, where its backend can have that: what is copied is of one moment. SandboxFailed."""
    async with AsyncExitStack() as stack:
        if isinstance(sandbox, Freezable):
            with suppress(UsageError):
                await stack.enter_async_context(sandbox.frozen())
        yield


def is_equal(one: CheckFinished, other: CheckFinished) -> bool:
    """Whether two failures say the same."""
    mine, its = one.observation, other.observation
    if not isinstance(mine, CommandOutput) or not isinstance(its, CommandOutput):
        return False
    return (one.command, mine.exit_code, mine.output) == (other.command, its.exit_code, its.output)


def changed_tests(changes: Iterable[Change], protect: Sequence[str]) -> tuple[str, ...]:
    """Paths that a test runner obeys and that were not protected."""
    found = [change.path for change in changes if change.entry != "directory" and not _below(change.path, protect)]
    return tuple(path for path in found if _obeyed(path))


def _obeyed(path: str) -> bool:
    *folders, name = PurePosixPath(path).parts
    return not TEST_FOLDERS.isdisjoint(folders) or any(fnmatchcase(name, pattern) for pattern in TEST_FILES)


def _below(path: str, protect: Sequence[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(PurePosixPath(one)) for one in protect)
