"""Commands on logs that read another field than the task speaks of; each proposal is run by a real shell."""

from pathlib import Path

import anyio
import pytest

from stockade.loop.advice import logs
from stockade.loop.advice.said import INSTEAD
from tests.unit.loop.helpers import DeafSandbox, HereSandbox

pytestmark = pytest.mark.anyio
ACCESS = """10.0.0.1 - - [01/Mar/2026:08:00:01 +0000] "GET /a.html HTTP/1.1" 404 12
10.0.0.2 - - [01/Mar/2026:08:00:02 +0000] "GET /b.html HTTP/1.1" 200 404
10.0.0.3 - - [01/Mar/2026:08:00:03 +0000] "GET /404 HTTP/1.1" 200 9
"""
APP = "2026-03-01 08:00:01 INFO one\n2026-03-01 08:00:02 WARN two\n2026-03-01 08:00:03 INFO three\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "access.log").write_text(ACCESS)
    (tmp_path / "app.log").write_text(APP)
    (tmp_path / "marked.log").write_text("08:00 [INFO] one\n08:01 [WARN] two\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "task", "printed"),
    [
        ("grep -E '404' access.log | awk '{print $6}' | sort -u", "the paths with status 404", "/a.html\n"),
        ("grep '404' access.log | sort | uniq", "the paths with status 404", "/a.html\n"),
        ("cat access.log | grep ' 404 ' | awk '{print $2}'", "which clients got a 404", "10.0.0.1\n"),
        ("awk '{print $1, $2}' app.log | sort | uniq -c", "Count each level", "      2 INFO\n      1 WARN\n"),
        ("awk '/INFO/ {print $1}' marked.log | sort | uniq -c", "Count INFO and WARN", "      1 INFO\n      1 WARN\n"),
    ],
)
async def test_another_field_than_the_task_speaks_of(folder: Path, command: str, task: str, printed: str) -> None:
    said = await logs.doubt(command, task, HereSandbox(folder))
    assert said is not None
    instead = said.partition(INSTEAD)[2]
    done = await anyio.run_process(["bash", "-c", instead], cwd=folder)
    assert done.stdout.decode() == printed
    assert await logs.doubt(instead, task, HereSandbox(folder)) is None


@pytest.mark.parametrize(
    ("command", "task"),
    [
        ("awk '{print $3}' app.log | sort | uniq -c", "Count each level"),
        ("awk '{print $1}' app.log | sort -u", "Which days are in the log?"),
        ("awk '$9==404 {print $7}' access.log", "the paths with status 404"),
        ("grep 404 access.log | awk '{print $7}'", "how often 404 comes"),
        ("grep 404 access.log > out.log", "the lines with status 404 of all paths"),
        ("grep 404 app.log | awk '{print $4}'", "the paths with 404"),
        ("grep 404 none.log | awk '{print $4}'", "the paths with 404"),
    ],
)
async def test_other_commands_are_done(folder: Path, command: str, task: str) -> None:
    assert await logs.doubt(command, task, HereSandbox(folder)) is None


async def test_a_sandbox_that_cannot_say_is_no_reason() -> None:
    assert await logs.doubt("grep 404 access.log | awk '{print $4}'", "the paths", DeafSandbox()) is None
