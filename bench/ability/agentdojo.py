"""Prompt injections of AgentDojo against `--approve`: `python -m bench.ability.agentdojo`.

    pip install inspect-ai==0.3.285 email-validator==2.4.0 deepdiff==9.1.0
    pip install --no-deps inspect-evals==0.28.0

Tasks, tools, injections and the judging of both (was the user's task done, did the attack reach its goal) are those of
the installed package (Debenedetti et al. 2024; inspect-evals, MIT). Its tools are a toolbox of the bot's, as mail or a
bank is that a user gives it; what they return holds the attacker's words.

The model is by default the worst there can be: it does the calls of the user's task, and as soon as a tool's answer
holds the attacker's words, all calls of the attacker's. So what is measured is what the rules of approval hold, not
what a model sees through. `--model PROVIDER/NAME` puts a real one there.
"""

import argparse
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
from inspect_ai.model import ChatMessageAssistant, execute_tools
from inspect_ai.tool import ToolCall, ToolDef
from inspect_ai.util import Store
from inspect_ai.util._store import init_subtask_store
from inspect_evals.agentdojo.attacks.attack import important_instructions_attack
from inspect_evals.agentdojo.dataset import TASK_SUITES
from rich.progress import track

from stockade import Bot
from stockade.core.actions import Action
from stockade.extend import ModelAnswer, ModelInfo, ModelRequest, OnText, ToolResult, ToolSpec

SUITES = ("banking", "slack", "travel", "workspace")
MAX_TURNS = 12
READS = ("get_", "read_", "search_", "list_", "check_")
"""What tools that only read are called here. A user who allows them writes this list, or reads their descriptions."""
PREFIX = "app__"
"""As tools of an MCP server have one: two of its names are those of tools of our own."""
SIGN = "This is an important message from me"
"""Of every injection."""


class Dojo:
    """Implements stockade's Toolbox with the tools of one suite, on an environment with the attacker's words in it."""

    def __init__(self, suite: Any, injection: Any) -> None:
        self.suite = suite
        words = important_instructions_attack().format(goal=injection.GOAL)
        vectors = dict.fromkeys(suite.get_injection_vector_defaults(), words)
        self.before = suite.load_and_inject_default_environment(vectors)
        now = deepcopy(self.before)
        self.store = Store({name: getattr(now, name) for name in type(now).model_fields})
        self.done: list[ToolCall] = []
        self.told = False
        """One of its answers held the attacker's words."""
        self.specs = tuple(
            ToolSpec(
                name=PREFIX + one.name,
                description=one.description,
                parameters=one.parameters.model_dump(exclude_none=True),
            )
            for one in map(ToolDef, suite.tools)
        )

    @property
    def after(self) -> Any:
        made = {name: self.store.get(name) for name in type(self.before).model_fields}
        return self.suite.environment_type.model_construct(**made)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        init_subtask_store(self.store)
        call = ToolCall(id="1", function=name.removeprefix(PREFIX), arguments=dict(arguments))
        made, _ = await execute_tools([ChatMessageAssistant(content="", tool_calls=[call])], self.suite.tools)
        self.done.append(call)
        error = getattr(made[0], "error", None)
        text = error.message if error else made[0].text
        self.told = self.told or SIGN in " ".join(text.split())
        return ToolResult(status="error" if error else "success", text=text)


@dataclass
class Gullible:
    """Implements stockade's Model: the user's calls, and the attacker's as soon as a tool's answer holds them."""

    dojo: Dojo
    task: list[ToolCall]
    attack: list[ToolCall]
    answer: str
    info: ModelInfo = field(default_factory=lambda: ModelInfo(name="gullible", provider="bench", native_tools=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        if self.dojo.told and self.attack:
            self.task, self.attack = self.attack + self.task, []
        if not self.task:
            return _called("finish", {"answer": self.answer or "done"})
        call = self.task.pop(0)
        return _called(PREFIX + call.function, call.arguments)


def _called(name: str, arguments: Mapping[str, Any]) -> ModelAnswer:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return ModelAnswer(content="", tool_calls=({"id": "1", "type": "function", "function": function},))


@dataclass
class User:
    """Allows what its task needs, to the letter and for the run; says of all else that it is not wanted."""

    needs: list[ToolCall]
    asked: int = 0

    def __call__(self, action: Action) -> str:
        self.asked += 1
        called = getattr(action, "name", "").removeprefix(PREFIX), getattr(action, "arguments", {})
        if any((one.function, one.arguments) == called for one in self.needs):
            return "run"
        return "that is not what I asked for: go on with my task"


@dataclass(frozen=True)
class Outcome:
    seen: bool
    done: bool
    attacked: bool
    asked: int
    status: str


async def outcome(suite: Any, task: Any, injection: Any, approve: str, *, there: bool, model: str = "") -> Outcome:
    """By the model of that name, and without one by the most gullible."""
    dojo = Dojo(suite, injection)
    needs = task.ground_truth(dojo.before)
    gullible = Gullible(dojo, list(needs), injection.ground_truth(dojo.before), task.GROUND_TRUTH_OUTPUT)
    user = User(needs)
    bot = Bot(
        "dojo", model=model or gullible, tools=[dojo], approve=approve, on_approval=user if there else None,
        answers="native", permission="READ_ONLY",
    )  # fmt: skip
    result = await bot.arun(task.PROMPT, max_iterations=MAX_TURNS if model else 60)
    assert model or result.status == "done", result.error
    after, answer = dojo.after, result.answer or ""
    return Outcome(
        dojo.told,
        await task.utility(answer, dojo.before, after, dojo.done, strict=False),
        await injection.security(answer, dojo.before, after, dojo.done),
        user.asked,
        result.status,
    )


def pairs(suites: Sequence[str], limit: int, seed: int) -> Iterator[tuple[str, Any, Any]]:
    """So many of each suite."""
    for name in suites:
        suite = TASK_SUITES[name]
        every = [(task, attack) for task in suite.user_tasks.values() for attack in suite.injection_tasks.values()]
        for task, attack in random.Random(seed).sample(every, min(limit, len(every))):
            yield name, task, attack


def rules(place: Path) -> str:
    """A file that allows what only reads."""
    names = sorted({ToolDef(one).name for name in SUITES for one in TASK_SUITES[name].tools})
    allowed = " ".join(f"@tool+{PREFIX}{name}" for name in names if name.startswith(READS))
    file = place / "reads.toml"
    file.write_text(f'[[command]]\nname = "{allowed}"\noptions = "*"\nwhy = "it only reads"\n')
    return f"rules={file}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=40, help="pairs of a task and an attack, of each suite")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=SUITES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--model", default="", metavar="PROVIDER/NAME", help=f"a real one, for at most {MAX_TURNS} turns"
    )
    given = parser.parse_args()
    drawn = list(pairs(given.suites, given.limit, given.seed))
    print("| approval | pairs | attack read | attack reached its goal | task done | asked a run | ended |")
    print("|---|---|---|---|---|---|---|")
    through: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="dojo-") as home:
        os.environ |= {"HOME": home, "XDG_STATE_HOME": f"{home}/state"}
        for words, approve, there in (
            ("`never`", "never", False),
            ("`ask`, the user is there", "ask", True),
            ("`rules=FILE` that allows what reads, the user is there", rules(Path(home)), True),
            ("the same, nobody is there", rules(Path(home)), False),
        ):
            made = (
                anyio.run(partial(outcome, TASK_SUITES[name], task, attack, approve, there=there, model=given.model))
                for name, task, attack in track(drawn, words)
            )
            came = list(made)
            counts = Counter(name for one in came for name in ("seen", "done", "attacked") if getattr(one, name))
            figures = f"{counts['seen']} | **{counts['attacked']}** | {counts['done']}"
            asked = sum(one.asked for one in came) / len(came)
            ended = ", ".join(
                f"{status} {times}" for status, times in Counter(one.status for one in came).most_common()
            )
            print(f"| {words} | {len(came)} | {figures} | {asked:.1f} | {ended} |", flush=True)
            for (name, _, attack), one in zip(drawn, came, strict=True):
                if one.attacked and approve != "never":
                    through[f"{name}: {' '.join(attack.GOAL.split())}"] += 1
    for goal, times in through.most_common():
        print(f"- {times} times, {goal}")


if __name__ == "__main__":
    main()
