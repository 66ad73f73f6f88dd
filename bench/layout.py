"""Where the bot's own goal and prompt go: said once when they change (ours), or in a last message of every request.

    nice -n 19 python -m bench.layout RUN.jsonl --model embedded/smollm2 --turns 20

Sends the requests of a run on record again in both layouts, each for an answer of one token, and adds up how many
tokens of the prompts came from the server's cache, from the second turn on. The recorded answers are read anew in both;
in a real run the first layout has them in the cache too, the second has not.

RUN.jsonl: `stockade runs export --format jsonl`, or what bench/endless.py leaves.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio

from stockade.core.events import ModelAnswered, ModelStarted, RunEvent, RunStarted, SelfConfigChanged, from_json
from stockade.core.messages import Message, ModelRequest, Sampling, Usage
from stockade.loop.context import Context
from stockade.loop.observe import whole_prompt
from stockade.plugins.shell_bot.answers import ListAnswers
from stockade.runtime import models
from stockade.runtime.spec import RunSpec


def requests(events: Sequence[RunEvent], *, once: bool) -> Iterator[tuple[Message, ...]]:
    """Of each turn. `once`: what the bot set itself is said where it changed, else last and every time."""
    context, own, task = Context(ListAnswers()), None, ""
    for event in events:
        if isinstance(event, RunStarted):
            task = event.task
        if isinstance(event, ModelAnswered):
            yield context.messages() if once else (*context.messages(), _last(own, task))
        if isinstance(event, SelfConfigChanged):
            own = event
            if not once:
                continue
        if not isinstance(event, ModelStarted):
            context.apply(event)


def _last(own: SelfConfigChanged | None, task: str) -> Message:
    goal = (own.goal if own else None) or task
    words = whole_prompt(own) if own else ""
    return Message(role="user", content=f"Your goal: {goal}\n{words}")


async def measure(events: Sequence[RunEvent], options: RunSpec, turns: int) -> None:
    model, name, _ = await models.model_of(options, None)
    async with model:
        for once in (True, False):
            usage = Usage()
            for number, messages in enumerate(requests(events, once=once)):
                if number == turns:
                    break
                request = ModelRequest(messages=messages, sampling=Sampling(temperature=0.0, max_tokens=1))
                answer = await model.ask(request)
                if number:  # the first one is as cold as what was asked before it
                    usage = usage + answer.usage
            row = {
                "model": name, "layout": "said once" if once else "last message", "turns": turns,
                "prompt_tokens": usage.prompt_tokens, "cached_tokens": usage.cached_tokens,
                "read_anew": usage.prompt_tokens - usage.cached_tokens,
            }  # fmt: skip
            print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--model", default="embedded/smollm2")
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    events = [from_json(line) for line in given.run.read_text().splitlines()]
    anyio.run(measure, events, RunSpec(model=given.model, ctx_size=8192), given.turns)


if __name__ == "__main__":
    main()
