"""A run as an ATIF trajectory (Agent Trajectory Interchange Format, v1.7; harbor's RFC 0001).

A step is the system prompt, something said to the bot, or one turn of it: its words, its actions, what came of them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from stockade.core.actions import Observation, Step
from stockade.core.events import (
    ActionFinished,
    AnswerUnderstood,
    AnswerUnreadable,
    CheckFinished,
    MessageInjected,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SelfConfigChanged,
)
from stockade.core.messages import Image
from stockade.exports import in_words, used
from stockade_sandbox.results import CommandOutput

SCHEMA = "ATIF-v1.7"


def trajectory(events: Sequence[RunEvent]) -> dict[str, Any]:
    """The whole document, as JSON values. `events` begin with run_started."""
    steps = _Steps()
    for event in events:
        steps.take(event)
    started = events[0]
    assert isinstance(started, RunStarted)
    finished = next((event for event in reversed(events) if isinstance(event, RunFinished)), None)
    usage = used(events)
    document: dict[str, Any] = {
        "schema_version": SCHEMA,
        "session_id": started.run_id,
        "trajectory_id": started.run_id,
        "agent": {
            "name": "stockade",
            "version": started.version,
            "model_name": started.model,
            "extra": {"bot": started.bot, "sandbox": started.sandbox, "answers": started.answers},
        },
        "steps": steps.made,
        "final_metrics": {
            "total_prompt_tokens": usage.prompt_tokens,
            "total_completion_tokens": usage.completion_tokens,
            "total_cached_tokens": usage.cached_tokens,
            "total_cost_usd": usage.cost,
            "total_steps": len(steps.made),
        },
    }
    if started.parent is not None:
        document["notes"] = f"a branch of run {started.parent} after its turn {started.parent_turn}"
    if finished is not None:
        told = {"status", "reason", "detail", "verified", "changed_tests", "changes"}
        facts = finished.model_dump(include=told, mode="json")
        document["extra"] = {"result": facts}
    return document


def text_of(observation: Observation) -> str:
    """What came of an action, in words."""
    if isinstance(observation, CommandOutput):
        text = observation.output.decode(errors="backslashreplace")
        notes = [f"[exit status {observation.exit_code}]"]
        notes += ["[timed out]"] if observation.timed_out else []
        notes += [f"[{observation.truncated_bytes} bytes cut]"] if observation.truncated_bytes else []
        return "\n".join(part for part in (text.rstrip("\n"), " ".join(notes)) if part)
    fields = observation.model_dump(exclude={"kind"})
    return str(next((value for value in fields.values() if isinstance(value, str)), observation.kind))


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


class _Steps:
    """Built event by event; `made` is what came so far."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self._turns: dict[int, dict[str, Any]] = {}
        """By number: several answers may come before the first of them is worked on."""
        self._scripted = 0

    def take(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._add("system", event.system_prompt, event.at)
                self._add("user", event.task, event.at, _shown(event.images))
            case RunResumed() if event.task is not None:
                self._add("user", event.task, event.at, _shown(event.images))
            case ModelAnswered():
                self._begin(event)
            case AnswerUnderstood() if not event.turn:
                self._script(event)
            case AnswerUnderstood() if event.turn in self._turns:
                self._understood(event, self._turns[event.turn])
            case AnswerUnreadable() if event.turn in self._turns:
                self._turns[event.turn]["extra"] = {"unreadable": event.message}
            case ActionFinished() if event.turn in self._turns:
                self._observed(self._turns[event.turn], f"{event.turn}-{event.step}", event.observation)
            case CheckFinished():
                words = "passed" if event.passed else "failed"
                text = f"check `{event.command}` {words}\n{text_of(event.observation)}"
                self._add("system", text, event.at)
            case MessageInjected():
                self._add("user", event.text, event.at, {"source": event.source})
            case SelfConfigChanged():
                facts = event.model_dump(mode="json", exclude={"at", "type", "turn"})
                self._add(
                    "system", f"In force from now on: {in_words(event)}", event.at, {"self_config_changed": facts}
                )
            case _:
                pass

    def _add(self, source: str, message: str, at: float, extra: dict[str, Any] | None = None) -> dict[str, Any]:
        step: dict[str, Any] = {
            "step_id": len(self.made) + 1,
            "timestamp": _time(at),
            "source": source,
            "message": message,
        }
        self.made.append(step | ({"extra": extra} if extra else {}))
        return self.made[-1]

    def _begin(self, event: ModelAnswered) -> None:
        usage = event.answer.usage
        turn = self._turns[event.turn] = self._add("agent", event.answer.content, event.at)
        turn["llm_call_count"] = 1
        turn["metrics"] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "cost_usd": usage.cost,
        }
        if event.answer.model:
            turn["model_name"] = event.answer.model

    def _script(self, event: AnswerUnderstood) -> None:
        """Actions before the first turn, which no model asked for."""
        turn = self._turns[event.turn] = self._add("agent", "", event.at, {"scripted": True})
        self._understood(event, turn, self._scripted)
        self._scripted += len(event.answer.steps)

    def _understood(self, event: AnswerUnderstood, turn: dict[str, Any], first: int = 0) -> None:
        turn["tool_calls"] = [_call(event.turn, number, step) for number, step in enumerate(event.answer.steps, first)]
        if event.answer.shown:
            turn["reasoning_content"] = event.answer.shown

    def _observed(self, turn: dict[str, Any], call: str, observation: Observation) -> None:
        results = turn.setdefault("observation", {"results": []})["results"]
        results.append({"source_call_id": call, "content": text_of(observation), "extra": {"kind": observation.kind}})


def _shown(images: Sequence[Image]) -> dict[str, Any] | None:
    """What came with a message: the bytes are in the record."""
    rows = [{"name": one.name, "media_type": one.media_type, "kilobytes": one.kilobytes} for one in images]
    return {"images": rows} if rows else None


def _call(turn: int, number: int, step: Step) -> dict[str, Any]:
    arguments = step.action.model_dump(exclude={"tool"}, exclude_none=True, mode="json")
    return {"tool_call_id": f"{turn}-{number}", "function_name": step.action.tool, "arguments": arguments}
