"""What the tools answer, as their output schemas say it; and what a client is told of each before it calls."""

from typing import Any

from mcp_types import ToolAnnotations
from pydantic import Field

from stockade.core.data import Data
from stockade.core.messages import Usage
from stockade_sandbox.results import Change


class Finished(Data):
    """A run that has ended."""

    run: str
    status: str = Field(description="done, stopped or failed.")
    reason: str
    detail: str
    verified: bool | None = Field(description="Whether the check passed; null without one.")
    changed_tests: list[str]
    answer: str
    turns: int
    usage: Usage
    changes: list[Change] = Field(description="What waits for run_apply.")
    model: str


class Recorded(Data):
    """A run on record."""

    run: str
    task: str
    bot: str
    model: str
    turns: int
    started: float = Field(description="Seconds since 1970.")
    status: str


class Applied(Data):
    """What was written to the folder, and what was not."""

    run: str
    applied: list[str]
    refused: dict[str, str] = Field(description="Why, by path.")
    look_first: dict[str, str] = Field(description="Left out without `flagged`: why, by path.")


class Executed(Data):
    """A command that has ended."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool = Field(description="More was written than is kept.")


class Opened(Data):
    """A sandbox that lives on."""

    sandbox: str = Field(description="Its id.")
    workdir: str


class Closed(Data):
    """A sandbox that is gone."""

    closed: str


class Started(Data):
    """A program beside the shell."""

    program: int = Field(description="Its number, for sandbox_poll and sandbox_kill.")


class Polled(Data):
    """A program since the last poll."""

    running: bool
    exit_code: int | None
    output: str
    dropped_bytes: int = Field(description="Of the output's beginning, which nobody fetched in time.")
    timed_out: bool
    error: str


class FileContent(Data):
    """One of the two."""

    text: str | None
    base64: str | None


class Written(Data):
    """A file that was written."""

    bytes: int


_TITLES = {
    "run_bot": "Give a task to a bot",
    "run_apply": "Write a run's changes to its folder",
    "runs_list": "List the runs on record",
    "run_show": "Show what a run did",
    "run_diff": "Show a run's changes",
    "sandbox_exec": "Run a command in a fresh sandbox",
    "sandbox_open": "Open a sandbox",
    "sandbox_run": "Run a command in a sandbox's shell",
    "sandbox_start": "Start a program in a sandbox",
    "sandbox_poll": "See what a program wrote",
    "sandbox_kill": "End a program",
    "sandbox_read": "Read a file in a sandbox",
    "sandbox_write": "Write a file in a sandbox",
    "sandbox_diff": "Show what a sandbox changed",
    "sandbox_close": "End a sandbox",
}
_READS = {"runs_list", "run_show", "run_diff", "sandbox_poll", "sandbox_read", "sandbox_diff"}
_ENDS = {"run_apply", "sandbox_kill", "sandbox_close"}
"""What they overwrite, end or throw away is not had back by a second call, which finds nothing more to do."""
_REACHES = {"run_bot", "sandbox_exec", "sandbox_run", "sandbox_start"}
"""A sandbox holds what they do: only where it has a network does anything outside change."""


def described(tool: str, *, reaches: bool) -> dict[str, Any]:
    """Its title and hints, all four: a client takes the worst for what is not said. `reaches`: as Service.reaches."""
    reaches = reaches and tool in _REACHES
    hints = ToolAnnotations(
        read_only_hint=tool in _READS,
        destructive_hint=tool in _ENDS or reaches,
        idempotent_hint=tool in _READS | _ENDS | {"sandbox_write"},
        open_world_hint=reaches,
    )
    return {"title": _TITLES[tool], "annotations": hints}
