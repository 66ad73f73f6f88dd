"""Does the Shell bot fall into an endless loop? Runs it for many turns on a real model, and counts.

    nice -n 19 python -m bench.endless --model embedded/smollm2 --turns 200 --arms on,off

An action is repeated when it and its outcome (but for digits and blanks) were seen among the 8 actions before it. A
stretch is a row of such actions; one of 20, or one of 10 at the end of the run, is an endless loop. `off` is the same
bot with nothing that brings it out of loops, which is what pocket-ASI does. Both are judged by one rule
(stockade/loop/circles.py).
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import anyio

from stockade import assemble
from stockade.bots.shell import DEFAULT_GOAL, INTRO, TEMPLATE
from stockade.core.events import HistoryFolded, RunEvent, RunFinished, TurnsForgotten
from stockade.loop import circles
from stockade.loop.autonomous import Autonomous
from stockade.loop.state import Done, fold
from stockade.options import Options
from stockade.testing import MemoryStore

WINDOW = 50
AT_THE_END = 10


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
    forgotten: int
    folded: int
    prompt_tokens: int
    cached: float
    seconds: float
    ended: str


def judged(events: Sequence[RunEvent], model: str, arm: str, seed: int) -> Row:
    """Figures of a run on record; the scripted intro does not count."""
    state = fold(events)
    done = [one for one in state.done if one.turn]
    marks = circles.repeated(done)
    longest, last = circles.longest(marks), circles.stretch(done)
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
        endless=longest >= circles.ENDLESS or last >= AT_THE_END,
        forgotten=sum(isinstance(event, TurnsForgotten) for event in events),
        folded=sum(isinstance(event, HistoryFolded) for event in events),
        prompt_tokens=usage.prompt_tokens,
        cached=usage.cached_tokens / max(1, usage.prompt_tokens),
        seconds=round(finished.at - events[0].at),
        ended=f"{finished.status} ({finished.reason})",
    )


def _distinct(done: Sequence[Done]) -> float:
    return len({circles.action_key(one.step.action) for one in done}) / max(1, len(done))


async def live(options: Options, arm: str, into: Path) -> list[RunEvent]:
    """A run of the bot in a new workspace; its events, which are kept in a file as they come."""
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as folder, into.open("w") as file:
        for name, text in TEMPLATE.items():
            (Path(folder) / name).write_text(text)

        def heard(event: RunEvent) -> None:
            file.write(event.model_dump_json() + "\n")
            file.flush()

        options = options.model_copy(update={"folder": (f"{folder}:rw",)})
        prepared = await assemble.prepare(options, store, on_event=heard)
        may = prepared.started.autonomy
        assert may is not None
        steering = Autonomous(may, prepared.started.policy.workdir, INTRO, breaking=arm == "on")
        prepared = replace(prepared, parts=replace(prepared.parts, steering=steering))
        await assemble.start(prepared)
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
        options = Options(
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
