"""The results of a batch as a log of inspect_ai, for `inspect view`: its JSON format, version 2."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from stockade import __version__
from stockade.fleet.results import FINAL, Attempt, latest

_SCORER = "solved"


def inspect_log(name: str, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """One sample a task and epoch, of its last attempt: `C` when it was solved, `I` when not; what says nothing about
    the task is a sample with an error and without a score, as in inspect_ai.
    """
    last = latest(list(attempts))
    counted = [one for one in last if one.outcome in FINAL]
    share = sum(one.outcome == "solved" for one in counted) / len(counted) if counted else 0.0
    ids = list(dict.fromkeys(one.id for one in last))
    times = [moment for one in attempts for moment in (one.started, one.started + one.seconds)] or [0.0]
    models = list(dict.fromkeys(one.model for one in last))
    accuracy = {"accuracy": {"name": "accuracy", "value": share}}
    done = all(one.outcome in FINAL for one in last)
    return {
        "version": 2,
        "status": "success" if done else "error",
        "eval": {
            "created": _moment(min(times)),
            "task": name,
            "dataset": {"name": name, "samples": len(ids), "sample_ids": ids},
            "model": models[0] if len(models) == 1 else "several",
            "config": {"epochs": max((one.epoch for one in last), default=1)},
            "packages": {"stockade": __version__},
        },
        "results": {
            "total_samples": len(last),
            "completed_samples": len(counted),
            "scores": [{"name": _SCORER, "scorer": _SCORER, "metrics": accuracy}],
        },
        "stats": {"started_at": _moment(min(times)), "completed_at": _moment(max(times))},
        "samples": [_sample(one) for one in last],
    }


def _sample(one: Attempt) -> dict[str, Any]:
    score = {"value": "C" if one.outcome == "solved" else "I", "answer": one.answer, "explanation": one.detail}
    error = {"message": f"{one.outcome}: {one.detail}", "traceback": "", "traceback_ansi": ""}
    kept = {"run", "outcome", "reason", "attempt", "turns", "tokens", "cost", "tags", "hash", "model"}
    return {
        "id": one.id,
        "epoch": one.epoch,
        "input": one.task,
        "target": "",
        "output": {"model": one.model, "completion": one.answer or ""},
        "metadata": one.model_dump(mode="json", include=kept),
        "total_time": one.seconds,
        **({"scores": {_SCORER: score}} if one.outcome in FINAL else {"error": error}),
    }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
