"""The Shell bot: a model that lives in a shell, has a goal, and rules itself by files in its folder: its goal, its part
of the prompt, its sampling. They are read before each turn, inside the sandbox, as the bot would read them, and may
hold anything. What cannot be taken is refused in words for the bot, and what was in force before stays in force.

It lives until its budget is used up or somebody stops it: its hook tells it when it repeats itself, and never ends its
run, refuses an action or takes a tool away (docs/shell.md).
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError, field_validator
from pydantic_core import PydanticKnownError

from stockade.core.actions import ReadFile, Shell, Step, WriteFile
from stockade.core.budget import Budget
from stockade.core.data import wrong_words
from stockade.core.events import Autonomy, HistoryCompacted, RunStarted, SelfConfigChanged
from stockade.core.messages import Sampling
from stockade.core.model_options import SamplingOptions
from stockade.core.ports import Sandbox
from stockade.extend import (
    AddMessage,
    Bot,
    BotSpec,
    CompletedStep,
    Ending,
    Hook,
    HookContext,
    RunContext,
    describe,
    rounds,
)

DEFAULT_GOAL = "Become the best programmer in the world!"

INTRO: tuple[Step, ...] = (
    Step(action=Shell(command="ls -la"), comment="What is here?"),
    Step(action=Shell(command="git init -q && echo done"), comment="I keep my work in git."),
    Step(action=WriteFile(path="test.txt", content="This is a test.\n"), comment="I can write files."),
    Step(action=ReadFile(path="test.txt"), comment="And read them."),
    Step(action=Shell(command="git status --short"), comment="What does git say?"),
    Step(action=Shell(command="git add test.txt && git status --short"), comment="Now git knows it."),
)
"""What pocket-ASI does before a model's first turn: one action of each kind, done for real."""

_OWN = {
    "goal": "{workdir}/goal: your goal, in place of the first message",
    "prompt": "{workdir}/system.md: your own part of this prompt: what you want to be told and not forget",
    "sampling": '{workdir}/config.json: how you are sampled, as {"temperature": 0.8, "top_p": 0.95}',
}

TEMPLATE: dict[str, str] = {
    "config.json": '{"temperature": 1.0}\n',
    "system.md": (
        "Work in small steps, each a program or a note that is there afterwards.\n"
        "Write here what you have learned, and keep it short.\n"
    ),
    "main.py": 'from pathlib import Path\n\nPath("output.txt").write_text("Hello from main.py\\n")\n',
}
"""A new workspace."""


SAY_AFTER = 2
"""Equal rounds in a row after which it is told, and sampled warmer."""
FOLD_AFTER = 4
"""Equal rounds in a row after which it sees in short what it has done: a model goes on with what stands before it many
times, however it is sampled (docs/measured/shell.md).
"""
_SHORT_ACTIONS, _SHORT_CHARS = 12, 160
_WARMER_STEP, _MOST_WARM, _LEAST_WARM = 0.15, 1.5, 0.7
_PENALTY_STEP, _MOST_PENALTY, _PENALIZED_TOKENS = 0.25, 2.0, 1024


GOAL, PROMPT, CONFIG = "goal", "system.md", "config.json"
MAX_GOAL_CHARS = 2000
MAX_PROMPT_CHARS = 8000
MAX_CONFIG_BYTES = 64 << 10
_READ_S = 10.0
_ABSENT, _NOT_REGULAR, _NO_ACCESS = 44, 47, 46
_READ = f"""
if [ ! -e "$1" ]; then exit {_ABSENT}; elif [ ! -f "$1" ]; then exit {_NOT_REGULAR}
elif [ ! -r "$1" ]; then exit {_NO_ACCESS}; fi
exec cat -- "$1"
"""
_WHY = {_NOT_REGULAR: "it is no plain file", _NO_ACCESS: "it cannot be read"}
_NO_EFFECT = ("stream", "tfs_z", "logprobs", "top_logprobs", "model")
"""What pocket-ASI takes in its config.json and has no counterpart here."""


class OwnSampling(SamplingOptions):
    """config.json. An answer must have room for an action: a bot that cannot answer could never mend that."""

    @field_validator("answer_tokens")
    @classmethod
    def _room(cls, value: int | None) -> int | None:
        if value is not None and value < 64:
            raise PydanticKnownError("greater_than_equal", {"ge": 64})
        if value is not None and value > 4096:
            raise PydanticKnownError("less_than_equal", {"le": 4096})
        return value


class _NotTaken(Exception):
    """The file is there and cannot be taken; the text says why."""


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Reads them in one sandbox. `window` of the model in tokens bounds the prompt; None when nobody knows it."""

    sandbox: Sandbox
    folder: str
    may: Autonomy
    window: int | None = None

    async def read(self, turn: int, at: float, before: SelfConfigChanged | None) -> SelfConfigChanged:
        """What is in force from `turn` on. Raises SandboxDied."""
        last = before or SelfConfigChanged(at=at, turn=turn)
        refused: list[str] = []
        goal, prompt, sampling = None, None, Sampling()
        if self.may.goal:
            goal = await self._text(GOAL, MAX_GOAL_CHARS, last.goal, refused)
        if self.may.prompt:
            prompt = await self._text(PROMPT, self._prompt_chars(), last.prompt, refused)
        if self.may.sampling:
            sampling = await self._sampling(last.sampling, refused)
        return SelfConfigChanged(at=at, turn=turn, goal=goal, prompt=prompt, sampling=sampling, refused=tuple(refused))

    def _prompt_chars(self) -> int:
        """At most about a quarter of the window."""
        return MAX_PROMPT_CHARS if self.window is None else max(400, min(MAX_PROMPT_CHARS, self.window * 3 // 4))

    async def _text(self, name: str, limit: int, before: str | None, refused: list[str]) -> str | None:
        try:
            data = await self._file(name, 4 * limit)
            text = data.decode().strip() if data is not None else ""
            if len(text) > limit:
                raise _NotTaken(f"it is {len(text)} characters long, {limit} is the most: make it shorter")
        except UnicodeDecodeError:
            refused.append(f"{name}: it is not UTF-8 text: write it anew")
        except _NotTaken as error:
            refused.append(f"{name}: {error}")
        else:
            return "".join(char for char in text if char >= " " or char in "\n\t") or None
        return before

    async def _sampling(self, before: Sampling, refused: list[str]) -> Sampling:
        try:
            data = await self._file(CONFIG, MAX_CONFIG_BYTES)
            return parsed(data) if data is not None and data.strip() else Sampling()
        except _NotTaken as error:
            refused.append(f"{CONFIG}: {error}")
            return before

    async def _file(self, name: str, limit: int) -> bytes | None:
        """None when it is not there."""
        argv = ["sh", "-c", _READ, "sh", f"{self.folder.rstrip('/')}/{name}"]
        result = await self.sandbox.exec(argv, timeout_s=_READ_S, max_output_bytes=limit)
        if result.exit_code == _ABSENT:
            return None
        if result.timed_out or result.exit_code:
            raise _NotTaken(_WHY.get(result.exit_code, "it cannot be read"))
        if result.truncated_bytes:
            raise _NotTaken(f"it is larger than {limit} bytes: make it shorter")
        return result.stdout


def parsed(data: bytes) -> Sampling:
    """The sampling of a config.json. _NotTaken says which key is wrong, and what would be right."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise _NotTaken('it is not JSON: write an object as {"temperature": 0.8}') from None
    if not isinstance(values, dict):
        raise _NotTaken('it is no object: write {"temperature": 0.8}')
    given = {("answer_tokens" if key == "max_tokens" else key): value for key, value in values.items()}
    if unknown := [str(key) for key in given if key not in OwnSampling.model_fields and key not in _NO_EFFECT]:
        raise _NotTaken(f"there is no setting {unknown[0][:40]!r}: there are {', '.join(OwnSampling.model_fields)}")
    wanted = {key: value for key, value in given.items() if key not in _NO_EFFECT}
    try:
        options = OwnSampling.model_validate(wanted, strict=False)
    except ValidationError as error:
        raise _NotTaken(wrong_words(error).lower()) from None
    fields = options.model_dump(exclude={"answer_tokens"})
    return Sampling(**fields, max_tokens=options.answer_tokens)


def over(base: Sampling, own: Sampling) -> Sampling:
    """`base` with what the bot has set itself."""
    return base.model_copy(update=own.model_dump(exclude_none=True))


class ShellBotRules(Hook):
    """`may`: what it may set itself. `folder`: where its own files are, inside."""

    name = "shell_bot"

    def __init__(self, may: Autonomy, folder: str) -> None:
        self.may, self.folder = may, folder

    async def before_turn(self, ctx: HookContext) -> AddMessage | None:
        turn = ctx.state.turns + 1
        files = OwnFiles(ctx.sandbox, self.folder, self.may, ctx.record.context.window)
        found = await files.read(turn, ctx.clock.now(), ctx.state.own)
        if not _same(found, ctx.state.own):
            await ctx.add(found)
        done = ctx.state.done
        count = rounds(done)
        if count >= FOLD_AFTER and done[-1].turn == turn - 1:  # once for each: an answer not readable is answered first
            await ctx.add(HistoryCompacted(at=ctx.clock.now(), turn=turn, before_turn=turn, summary=in_short(done)))
        told = any(one.source == self.name and one.turn + 1 >= turn for one in ctx.state.injected[-2:])
        if count < SAY_AFTER or told:
            return None
        return AddMessage(f"The same action has given the same result {count} times in a row. Do something else now.")

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        """What it has set itself, unless its answers cannot be read with that; warmer while it repeats itself."""
        state = ctx.state
        if state.own is not None and not state.unreadable:
            sampling = over(sampling, state.own.sampling)
        count = rounds(state.done)
        if count < SAY_AFTER:
            return sampling
        warm = max(sampling.temperature or 0.0, _LEAST_WARM) + _WARMER_STEP * count
        penalty = (sampling.presence_penalty or 0.0) + _PENALTY_STEP * count
        other = {
            "temperature": max(sampling.temperature or 0.0, min(_MOST_WARM, warm)),
            "presence_penalty": min(_MOST_PENALTY, penalty),
            "repeat_last_n": _PENALIZED_TOKENS,
            "seed": None,
        }
        return sampling.model_copy(update=other)


def in_short(done: Sequence[CompletedStep]) -> str:
    """Its last different actions, a line each: what, what came of it, and how often that was so."""
    often = Counter(one.key for one in done)
    last = {one.key: one for one in done}
    lines = []
    for one in list(last.values())[-_SHORT_ACTIONS:]:
        action = one.step.action.model_dump_json(exclude_none=True, exclude={"tool"})
        came = describe(one.observation, _SHORT_CHARS).strip().replace("\n", " | ")
        times = f" ({often[one.key]} times the same)" if often[one.key] > 1 else ""
        lines.append(f"- {action[:_SHORT_CHARS]}: {came[:_SHORT_CHARS]}{times}")
    return "\n".join(lines)


def _same(now: SelfConfigChanged, before: SelfConfigChanged | None) -> bool:
    last = before or SelfConfigChanged(at=now.at, turn=now.turn)
    return now == last.model_copy(update={"at": now.at, "turn": now.turn})


class ShellBot(Bot):
    """Its folder is its own: the loop, ruled by its files, behind six scripted actions where `intro` is on."""

    def told(self, started: RunStarted) -> tuple[str, ...]:
        """The files by which it rules itself; nothing when it has none."""
        may, workdir = started.autonomy, started.policy.workdir
        lines = [
            f"- {words.replace('{workdir}', workdir)}" for name, words in _OWN.items() if getattr(may, name, False)
        ]
        first = "You rule yourself by these files; what you write there holds from your next turn on:"
        return ("\n".join([first, *lines]),) if lines else ()

    def hooks(self, started: RunStarted) -> tuple[Hook, ...]:
        return (ShellBotRules(started.autonomy, started.policy.workdir),) if started.autonomy is not None else ()

    async def run(self, ctx: RunContext) -> Ending:
        may = ctx.started.autonomy
        return await ctx.loop(INTRO if may is not None and may.intro else ())


SHELL = BotSpec(
    name="shell",
    summary="long-running shell agent with a goal of its own; may rewrite its goal, prompt and sampling",
    prompt=(
        "You are alone in a bash shell on Linux and live in it. The folder {workdir} is yours and is your current"
        " folder. Nobody reads your answers and nobody will reply: what you do is what counts. The first message is"
        " your goal. Each turn do one or a few actions, look at what came of them, then decide what is next. There is"
        " no network unless a command shows that there is, and no interactive program works. Never do again what has"
        " just given nothing new. You are never finished: when one thing is done, choose the next that serves your"
        " goal."
    ),
    tools=("shell", "write_file", "read_file"),
    folder_mode="rw",
    budget=Budget(max_turns=0, timeout_s=0.0),
    settings={"answers": "list", "streams": "separate"},
    autonomous=True,
    bot=ShellBot(),
)
