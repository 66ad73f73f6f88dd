"""The data at the bottom: sizes, budgets, events to and from JSON, output that is not text."""

import math
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from pydantic import TypeAdapter, ValidationError

from stockade.core import errors
from stockade.core.actions import Finish, Shell, Step
from stockade.core.budget import Budget, Spent, exhausted, seconds_left
from stockade.core.errors import to_install
from stockade.core.events import ActionStarted, RunFinished, from_json, to_json
from stockade.core.messages import Usage
from stockade_sandbox.policy import FolderRule, Limits, Policy, parse_size
from stockade_sandbox.results import Chunk, CommandOutput

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1000", 1000), ("512M", 512 << 20), ("2GiB", 2 << 30), ("1.5k", 1536), ("2 gb", 2 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["9" * 20, "9" * 400, "4194305T"])
def test_what_is_more_than_any_machine_has(text: str) -> None:
    with pytest.raises(ValueError, match="more than any machine has"):
        parse_size(text)


@pytest.mark.parametrize("name", ["cpus", "command_timeout_s", "disk_bytes", "processes"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 2**63])
def test_what_is_no_limit(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0"):
        Limits(**{name: value})


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "1e9", "lots"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (Budget(), Spent(turns=19), None),
        (Budget(), Spent(turns=20), "turns: 20 of 20"),
        (Budget(max_turns=0), Spent(turns=10_000), None),
        (Budget(timeout_s=5), Spent(elapsed_s=5), "time: 5 s of 5 s"),
        (Budget(timeout_s=0), Spent(elapsed_s=1e9), None),
        (Budget(max_tokens=10), Spent(usage=Usage(prompt_tokens=6, completion_tokens=4)), "tokens: 10 of 10"),
        (Budget(max_cost=0.5), Spent(usage=Usage(cost=0.75)), "cost: 0.7500 of 0.5 USD"),
    ],
)
def test_budgets(budget: Budget, spent: Spent, reason: str | None) -> None:
    assert exhausted(budget, spent) == reason


def test_time_left_is_never_negative() -> None:
    assert seconds_left(Budget(timeout_s=5), Spent(elapsed_s=9)) == 0
    assert seconds_left(Budget(timeout_s=0), Spent(elapsed_s=9)) is None


@given(st.binary())
def test_output_is_exact_through_json(data: bytes) -> None:
    output = CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", data),))
    again = TypeAdapter(CommandOutput).validate_json(TypeAdapter(CommandOutput).dump_json(output))
    assert again.stdout == data


def test_an_event_comes_back_as_it_was() -> None:
    event = ActionStarted(at=1.5, turn=2, step=0, action=Step(action=Shell(command="echo '\u0000\u2028\"'")))
    assert from_json(to_json(event)) == event


@pytest.mark.parametrize("text", ["", "{}", '{"type": "nonsense"}', "[1]", '{"type": "message_injected"}', "\xff"])
def test_what_is_no_event(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (pydantic's own message)
        from_json(text)


def test_data_does_not_change_and_knows_no_other_fields() -> None:
    finish = Finish(answer="x")
    with pytest.raises(ValidationError):
        finish.answer = "y"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Finish.model_validate({"answer": "x", "more": 1})


@pytest.mark.parametrize("inside", ["relative", "/a/../../b", ""])
def test_folders_are_mounted_at_plain_absolute_paths(inside: str) -> None:
    with pytest.raises(ValueError, match="must be absolute"):
        FolderRule(host="/x", inside=inside)


def test_defaults_are_the_safe_ones() -> None:
    policy = Policy()
    assert (policy.network.mode, policy.environment, policy.folders) == ("none", {}, ())
    assert FolderRule(host="/x").mode == "overlay"
    limits = policy.limits
    assert all([limits.memory_bytes, limits.processes, limits.open_files, limits.file_bytes, limits.command_timeout_s])


def test_every_error_says_who_must_act() -> None:
    statuses: dict[type[errors.StockadeError], int] = {
        errors.UsageError: 2,
        errors.PolicyNotEnforceable: 4,
        errors.SandboxFailed: 4,
        errors.SandboxDied: 4,
        errors.StoreFailed: 4,
        errors.ModelFailed: 5,
        errors.ModelUnavailable: 5,
        errors.ContextExceeded: 5,
    }
    assert {kind: kind.exit_status for kind in statuses} == statuses
    assert str(errors.UsageError("cause", "way out")) == "cause (way out)"


def test_a_line_for_a_terminal_holds_no_control() -> None:
    event = RunFinished(at=1.0, status="done", reason="finish", answer="\x7f\x9b31m\x1b]0;x\x07 é \U0001f600")
    line = to_json(event, ascii_only=True)
    assert line.isascii()
    assert line.isprintable()
    assert from_json(line) == event


def test_hints_name_packages_that_are_there_and_none_that_is_not_ours() -> None:
    """On any index `stockade` is not our name: what a hint says to install is what pyproject.toml pins."""
    project = tomllib.loads((ROOT / "packages/stockade/pyproject.toml").read_text())["project"]
    for extra in project["optional-dependencies"]:
        pip, install, *names = shlex.split(to_install(extra))
        assert (pip, install) == ("pip", "install")
        wanted = project["optional-dependencies"][extra]
        assert set(map(Requirement, names)) == set(map(Requirement, wanted))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    pages = [
        ROOT / name for name in listed.split("\0") if name.endswith((".md", ".py", ".toml", ".c", ".sh", "Makefile"))
    ]
    assert len(pages) > 500
    ours = re.compile(r"pip install[^\n]*(?<!packages/)\bstockade(\[|\b(?![/_.-]))")
    assert [path for path in pages if path.is_file() and ours.search(path.read_text()) and path != Path(__file__)] == []


def test_all_is_all_the_extras() -> None:
    extras = tomllib.loads((ROOT / "packages/stockade/pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(extras.pop("all")) == sorted(needed for names in extras.values() for needed in names)
