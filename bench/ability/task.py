"""What a task is: words, a folder to begin with, a check of it afterwards, and a solution that proves the check.

Checks look at the end state alone: it does not matter how it came about, nor, but for questions, what the bot said.
"""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["files", "text", "csv", "json", "logs", "archives", "git", "programs", "questions"]
Check = Callable[[Path], bool]
ANSWER = ".answer"
"""The file in the folder of a question that what the bot said at its end is written to, for the check."""
COMMAND_TIMEOUT_S = 20
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_AUTHOR_DATE": "2026-03-01T09:00:00Z",
    "GIT_COMMITTER_DATE": "2026-03-01T09:00:00Z",
}
"""Of every command of ours: nothing of the machine's own settings, the same commit names everywhere."""


@dataclass(frozen=True)
class Task:
    """`files` are written as they are, then `prepare` (bash) runs in the folder; `solution` is bash too.

    `level` 1 is a single command, 2 a few commands or a careful one, 3 several steps that need a look in between.
    """

    name: str
    kind: Kind
    level: Literal[1, 2, 3]
    words: str
    solved: Check
    solution: str
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: str = ""


def set_up(task: Task, folder: Path) -> None:
    """Makes the folder's content; the same bytes each time. CalledProcessError when a command of ours fails."""
    for name, text in task.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if task.prepare:
        bash(task.prepare, folder).check_returncode()


def bash(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """TimeoutExpired when it takes too long."""
    return subprocess.run(
        ["bash", "-ec", script], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False,
        timeout=COMMAND_TIMEOUT_S, stdin=subprocess.DEVNULL, errors="replace",
    )  # fmt: skip


def judge(task: Task, folder: Path) -> bool:
    """True when the end state is right. What a check trips over in a folder full of nonsense is a no."""
    try:
        return task.solved(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, subprocess.TimeoutExpired):
        return False
