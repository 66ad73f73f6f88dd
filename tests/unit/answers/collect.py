"""Collects real answers of a small model: `python -m tests.unit.answers.collect MODEL SECONDS FOLDER [PROTOCOL...]`.

MODEL is what `--model` takes. A line of the data is one answer; `expect` is filled in by hand afterwards, and the file
goes to tests/data/answers.
"""

import json
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import anyio

from stockade.bots.opening import opening
from stockade.bots.spec import WRITING
from stockade.core.actions import Answer, Shell, Step
from stockade.core.messages import Message, ModelRequest, Sampling
from stockade.core.ports import AnswerProtocol, Model
from stockade.models.settings import ModelSettings
from stockade.runtime.models import open_model
from stockade_sandbox.policy import Policy
from tests.support.parts import PROTOCOLS, make_protocol

TASKS = (
    "Write the number of lines of data.csv into count.txt",
    "Create hello.py that prints the numbers 1 to 3, and run it",
    "Replace 'blue' by 'red' in colours.txt",
    "Which file in this folder is the largest?",
    "Write the sorted unique words of words.txt into unique.txt",
    "Make a README.md with a heading and a code block that shows how to run hello.py",
    "Count how often ERROR stands in app.log",
    "Say hello to the user and finish",
    "Find all .txt files that contain 'TODO'",
    "Write a Python function that computes the factorial and print the factorial of 5",
)
MAX_TOKENS = 160


def request(protocol: AnswerProtocol, task: str, later: bool, sampling: Sampling) -> ModelRequest:
    """The first turn of a run, or the second one, after an `ls`."""
    system = opening(WRITING, protocol, Policy())
    messages = [Message(role="system", content=system), Message(role="user", content=task)]
    if later:
        step = Step(action=Shell(command="ls"))
        messages.append(protocol.write(Answer(thought="First I look.", steps=(step,))))
        seen = "The command has succeeded. Output:\napp.log\ncolours.txt\ndata.csv\nwords.txt"
        messages.append(protocol.observed(step, seen))
    return protocol.constrain(ModelRequest(messages=tuple(messages), sampling=sampling), WRITING.all_tools)


async def collect(model: Model, label: str, until: float, folder: Path, protocols: Sequence[str]) -> None:
    """Answers until the clock says `until`; every protocol gets its share whenever that is."""
    for number, (temperature, later, task) in enumerate(product((0.8, 0.0), (False, True), TASKS)):
        for name in protocols:
            if time.monotonic() > until:
                return
            sampling = Sampling(temperature=temperature, seed=number, max_tokens=MAX_TOKENS)
            answer = await model.ask(request(make_protocol(name), task, later, sampling))
            line: dict[str, Any] = {"task": task, "temperature": temperature, "turn": 2 if later else 1}
            line |= answer.model_dump(include={"content", "tool_calls", "finish_reason"}, mode="json")
            with (folder / f"{label}-{name}.jsonl").open("a") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


async def main(spec: str, seconds: float, folder: Path, protocols: Sequence[str]) -> None:
    model, name, _ = await open_model(spec, ModelSettings(ctx_size=2048, threads=1))
    async with model:
        await collect(model, Path(name).stem.split("-instruct")[0], time.monotonic() + seconds, folder, protocols)


if __name__ == "__main__":
    Path(sys.argv[3]).mkdir(parents=True, exist_ok=True)
    anyio.run(main, sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:] or list(PROTOCOLS))
