"""Does the Shell bot fall into an endless loop? Runs it for many turns on a real model, and counts.

    nice -n 19 python -m bench.endless --model embedded/smollm2 --turns 200 --arms on,off

An action is repeated when it and its outcome (but for digits and blanks) were seen among the 8 actions before it. A
stretch is a row of such actions; one of 20, or one of 10 at the end of the run, is an endless loop. `off` is the same
bot that is neither told of its loops nor sampled differently, which is what pocket-ASI does.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

import anyio

from stockade.core.actions import fields_of
from stockade.core.events import HistoryCompacted, RunEvent, RunFinished
from stockade.loop.state import CompletedStep, fold
from stockade.plugins.shell_bot.bot import DEFAULT_GOAL, TEMPLATE
from stockade.runtime import factory
from stockade.runtime.spec import RunSpec
from stockade.testing import MemoryStore

WINDOW = 50
ENDLESS = 20
AT_THE_END = 10
WITHIN = 8
"""An action is a repetition when it and its outcome are among as many before it."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Row:
    """Of one run. Shares of 1; stretches in actions."""

    model: str
    arm: str
    seed: int
    turns: int
    actions: int
    distinct: float
    distinct_worst: float
    repeated: float
    longest: int
    last: int
    endless: bool
    folded: int
    prompt_tokens: int
    cached: float
    seconds: float
    ended: str


def judged(events: Sequence[RunEvent], model: str, arm: str, seed: int) -> Row:
    """Figures of a run on record; the scripted intro does not count."""
    state = fold(events)
    done = [one for one in state.done if one.turn]
    marks = repeated(done)
    rows = [len(list(row)) for mark, row in groupby(marks) if mark]
    longest, last = max(rows, default=0), rows[-1] if marks and marks[-1] else 0
    finished = state.finished
    assert isinstance(finished, RunFinished)
    usage = state.usage
    return Row(
        model=model,
        arm=arm,
        seed=seed,
        turns=state.turns,
        actions=len(done),
        distinct=_distinct(done),
        distinct_worst=min(_distinct(done[at : at + WINDOW]) for at in range(0, max(1, len(done) - WINDOW + 1), 10)),
        repeated=sum(marks) / max(1, len(marks)),
        longest=longest,
        last=last,
        endless=longest >= ENDLESS or last >= AT_THE_END,
        folded=sum(isinstance(event, HistoryCompacted) for event in events),
        prompt_tokens=usage.prompt_tokens,
        cached=usage.cached_tokens / max(1, usage.prompt_tokens),
        seconds=round(finished.at - events[0].at),
        ended=f"{finished.status} ({finished.reason})",
    )


def _plain(text: str) -> str:
    return " ".join(_NUMBER.sub("#", text).split())


def repeated(done: Sequence[CompletedStep]) -> list[bool]:
    """For each action, whether it and its outcome came lately, but for digits and blanks."""
    seen = [
        (
            _plain(one.step.action.model_dump_json()),
            _plain(json.dumps({**fields_of(one.observation), "duration_s": 0, "same": False})),
        )
        for one in done
    ]
    return [one in seen[max(0, at - WITHIN) : at] for at, one in enumerate(seen)]


def _distinct(done: Sequence[CompletedStep]) -> float:
    return len({_plain(one.step.action.model_dump_json()) for one in done}) / max(1, len(done))


async def live(options: RunSpec, arm: str, into: Path) -> list[RunEvent]:
    """A run of the bot in a new workspace; its events, which are kept in a file as they come."""
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as folder, into.open("w") as file:
        for name, text in TEMPLATE.items():
            (Path(folder) / name).write_text(text)

        def heard(event: RunEvent) -> None:
            file.write(event.model_dump_json() + "\n")
            file.flush()

        options = options.model_copy(update={"folder": (f"{folder}:rw",)})
        prepared = await factory.prepare(options, store, on_event=heard)
        if arm == "off":
            hooks = tuple(hook for hook in prepared.parts.hooks if hook.name != "shell_bot")
            prepared = replace(prepared, parts=replace(prepared.parts, hooks=hooks))
        await factory.start(prepared)
        return await store.events(prepared.started.run_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded/smollm2")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--arms", default="on,off")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ctx-size", type=int, default=8192)
    parser.add_argument("--answer-tokens", type=int, default=384)
    parser.add_argument("--into", type=Path, default=Path("/tmp/endless"))
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    for arm in given.arms.split(","):
        options = RunSpec(
            task=DEFAULT_GOAL, bot="shell", model=given.model, max_turns=given.turns, seed=given.seed,
            ctx_size=given.ctx_size, command_timeout=10.0, answer_tokens=given.answer_tokens,
        )  # fmt: skip
        name = f"{given.model.rpartition('/')[2]}-{arm}-{given.seed}"
        events = anyio.run(live, options, arm, given.into / f"{name}.jsonl")
        row = judged(events, given.model, arm, given.seed)
        (given.into / f"{name}.json").write_text(json.dumps(asdict(row), indent=1))
        print(json.dumps(asdict(row)), flush=True)


if __name__ == "__main__":
    main()
