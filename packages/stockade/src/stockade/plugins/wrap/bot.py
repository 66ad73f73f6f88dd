"""A program in place of the loop: it is an agent itself, or anything else, and asks whatever model it wants. It has the
user's terminal or their pipes; or it does one task by itself, is held to the run's time and its check like every bot,
and is told when the check fails.
"""

import os
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import anyio

from stockade.core.budget import Budget
from stockade.core.data import Data
from stockade.core.errors import HookFailed
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    ProgramsStarted,
    RunEvent,
    RunStarted,
)
from stockade.extend import (
    Answer,
    Bot,
    BotSpec,
    CommandOutput,
    Ending,
    EndRun,
    ExecResult,
    Finish,
    FolderRule,
    Narrator,
    Policy,
    Programs,
    RunContext,
    Sandbox,
    SandboxDied,
    Setup,
    Shell,
    Step,
    UsageError,
)
from stockade.plugins.wrap.preset import Preset, seen
from stockade_sandbox.port import TellsPrograms
from stockade_sandbox.results import Chunk, ProgramStart, Stream

NAME = "wrap"
HEADLESS_S = 3600.0
MAX_ANSWER_BYTES = 1 << 20
MAX_PROGRAMS, MAX_WORDS_CHARS = 2_000, 300
"""Of an event: different ones, and characters of each one's words."""
SHOWN = 8
_LEFT = EndRun("stopped", "hook", "a hook wants more, and the program has ended")

Carry = Callable[[Sandbox, Sequence[str]], Awaitable[ExecResult]]
"""Runs a program in a sandbox with the user's own streams, for as long as it is wanted."""


class Wanted(Data):
    """What a run was started for, as its record has it. `argv` as it is inside, without a task's arguments; `model`
    as the user named it.
    """

    argv: tuple[str, ...]
    preset: Preset
    home: str = ""
    model: str = ""
    alone: bool = False
    """Whether it does a task by itself."""


class Wrapped(Bot):
    """Drives runs by a program. `argv` as the user typed it; `path`: where programs are looked for inside. Without
    `carry` it does the run's task by itself.
    """

    asks = False
    tells_programs = True

    def __init__(
        self, preset: Preset | None = None, argv: Sequence[str] = (), path: str = "",
        carry: Carry | None = None, home: Path | None = None,
    ) -> None:  # fmt: skip
        self.preset, self.argv, self.path = preset or Preset(), tuple(argv), path
        self.carry, self.home = carry, home
        self._started = ""

    def policy(self, policy: Policy) -> Policy:
        """With the program and what its preset sets, seen read-only; and the named home in place of the empty one."""
        if not self.argv:
            return policy
        self._started, policy = seen(policy, self.argv[0], self.path)
        policy = replace(policy, environment={**self.preset.environment, **policy.environment})
        if self.home is None:
            return policy
        own = FolderRule(host=str(self.home), mode="rw", inside=f"/homes/{self.home.name}")
        return replace(policy, folders=(*policy.folders, own), environment={**policy.environment, "HOME": own.inside})

    def narrator(self, started: RunStarted) -> Narrator:
        return _narrated

    async def begin(self, setup: Setup) -> RunStarted:
        started = setup.started
        if not self.argv:
            raise UsageError("which program?", "stockade wrap -- COMMAND ..., or --bot NAME: stockade bots")
        idle = {"--tool": started.tools, "--attach": started.images, "--output-schema": started.output_schema}
        if unused := [name for name, value in idle.items() if value]:
            raise UsageError(
                f"{unused[0]} is for a bot that asks a model, and {self.argv[0]} asks its own", "leave it out"
            )
        if started.budget.max_tokens:
            what = f"--max-tokens cannot be kept: {self.argv[0]} asks its own model"
            raise UsageError(what, "--timeout S bounds it; -o max_tokens=0 lifts the bound of your settings")
        alone, model = self.carry is None, setup.program_model
        arguments = (*self.preset.arguments, *self.preset.asking(model, alone=alone))
        if alone:
            self.preset.headless("", again=False, turns=started.budget.max_turns)
        argv = (self._started or self.argv[0], *(() if alone else arguments), *self.argv[1:])
        wanted = Wanted(argv=argv, preset=self.preset, home=str(self.home or ""), model=model, alone=alone)
        options = {**started.options, NAME: wanted.model_dump(mode="json")}
        none: dict[str, Any] = {"system_prompt": "", "model_profile": "", "actions": None, "sources": {}}
        name = "/".join(filter(None, ("program", Path(self.argv[0]).name, model)))
        return started.model_copy(update={**none, "options": options, "model": name})

    def check_resume(self, started: RunStarted, changed: Collection[str], *, done: bool) -> None:
        if not wanted_of(started).alone:
            raise UsageError("a program is told what to do in its own words", "wrap it again: stockade wrap -- ...")
        if "model" in changed:
            raise UsageError(f"the run asks {started.model} to its end", "leave --model out, or begin another run")

    async def run(self, ctx: RunContext) -> Ending:
        wanted, told, again = wanted_of(ctx.started), ctx.started.task, bool(ctx.state.acted)
        while True:
            if wanted.alone and (end := await ctx.hooks.before_turn(1)) is not None:
                return Ending.by(end)
            turns = ctx.started.budget.max_turns
            arguments, stdin = tuple[str, ...](), None
            if wanted.alone:
                arguments, stdin = wanted.preset.headless(told, again=again, turns=turns, model=wanted.model)
            done = await self._do(ctx, (*wanted.argv, *arguments), stdin)
            if (end := _unsuccessful(wanted, done)) is not None:
                return Ending.by(end)
            answer, before = done.stdout.decode(errors="replace").strip(), len(ctx.record.context.messages())
            end = await ctx.hooks.before_finish(Finish(answer=answer), spoken=False)
            if end is None and not wanted.alone:  # where a check failed, that is what the run ends by
                end = _LEFT if all(ctx.state.checked.values()) else EndRun("done", "finish")
            if end is not None:
                return Ending.by(end, answer if wanted.alone else None)
            told, again = "\n\n".join(one.content for one in ctx.record.context.messages()[before:]), True

    async def _do(self, ctx: RunContext, argv: Sequence[str], stdin: bytes | None) -> CommandOutput:
        """The program, on record before it starts and when it has ended."""
        turn = 1 + sum(isinstance(event, ActionStarted) for event in await ctx.events())
        step, begun = Step(action=Shell(command=shlex.join(argv))), ctx.now()
        await ctx.add(
            AnswerUnderstood(at=begun, turn=turn, answer=Answer(steps=(step,))),
            ActionStarted(at=begun, turn=turn, step=0, action=step),
        )
        refused, end = await ctx.hooks.before_action(step.action)
        if refused is not None:
            await ctx.add(ActionFinished(at=ctx.now(), turn=turn, step=0, observation=refused))
            raise end if isinstance(end, HookFailed) else UsageError(f"it was not started: {refused.reason}")
        if isinstance(ctx.sandbox, TellsPrograms):
            ctx.sandbox.started_programs()  # of the sandbox itself
        try:
            done = await self._run_program(ctx, argv, stdin, ctx.account.seconds_left(begun))
        finally:
            if isinstance(ctx.sandbox, TellsPrograms):
                with anyio.CancelScope(shield=True):
                    await ctx.add(_programs(ctx.now(), *ctx.sandbox.started_programs()))
        streams: tuple[tuple[Stream, bytes], ...] = (("stdout", done.stdout), ("stderr", done.stderr))
        output = CommandOutput(
            exit_code=done.exit_code, timed_out=done.timed_out, truncated_bytes=done.truncated_bytes,
            chunks=tuple(Chunk.of(name, data) for name, data in streams if data), cwd=ctx.started.policy.workdir,
            duration_s=ctx.now() - begun,
        )  # fmt: skip
        await ctx.add(ActionFinished(at=ctx.now(), turn=turn, step=0, observation=output))
        return output

    async def _run_program(
        self, ctx: RunContext, argv: Sequence[str], stdin: bytes | None, left: float | None
    ) -> ExecResult:
        if stdin is not None:
            return await _alone(ctx.sandbox, argv, stdin, left)
        assert self.carry is not None
        with anyio.move_on_after(left):
            return await self.carry(ctx.sandbox, argv)
        return ExecResult(exit_code=124, stdout=b"", stderr=b"", timed_out=True)


def wanted_of(started: RunStarted) -> Wanted:
    """UsageError for a record that does not say."""
    found = started.options.get(NAME)
    if not isinstance(found, dict):
        raise UsageError(f"the record of run {started.run_id} does not say which program it was of", "begin it again")
    return Wanted.model_validate(found)


def status_of(events: Sequence[RunEvent]) -> int | None:
    """Of the program that ran last; None where none came to its end."""
    ends = (one.observation for one in reversed(events) if isinstance(one, ActionFinished))
    last = next((one for one in ends if isinstance(one, CommandOutput)), None)
    return None if last is None else 124 if last.timed_out else last.exit_code


def _unsuccessful(wanted: Wanted, done: CommandOutput) -> EndRun | None:
    """How the run ends where its program did not succeed."""
    name = Path(wanted.argv[0]).name
    if done.timed_out:
        return EndRun("stopped", "time", f"time: {name} ran {done.duration_s:.0f} s")
    return EndRun("stopped", "gave_up", f"{name} ended with status {done.exit_code}") if done.exit_code else None


def _programs(at: float, started: Sequence[ProgramStart], more: int) -> ProgramsStarted:
    """As it goes on record: bounded, whatever a program does."""
    found = Counter((one.program, _short(one.argv)) for one in started)
    kept = list(found.items())[:MAX_PROGRAMS]
    more += found.total() - sum(count for _, count in kept)
    return ProgramsStarted(at=at, programs=tuple((*key, count) for key, count in kept), more=more)


def _short(argv: Sequence[str]) -> tuple[str, ...]:
    """The first words, in all as long as MAX_WORDS_CHARS."""
    left, words = MAX_WORDS_CHARS, list[str]()
    for word in argv:
        if left <= 0:
            return (*words, "...")
        words.append(word if len(word) <= left else f"{word[:left]}...")
        left -= len(word)
    return tuple(words)


def _narrated(event: RunEvent) -> Sequence[tuple[str, str]] | None:
    """The most frequent of the programs; all else as for every bot."""
    if not isinstance(event, ProgramsStarted):
        return None
    names = Counter[str]()
    for program, _, count in event.programs:
        names[PurePosixPath(program).name] += count
    if not (total := names.total() + event.more):
        return []
    most = ", ".join(f"{name} {count}" for name, count in names.most_common(SHOWN))
    return [
        (f"[{total} program{'s' if total > 1 else ''} started: {most}{', ...' if len(names) > SHOWN else ''}]", "dim")
    ]


async def _alone(sandbox: Sandbox, argv: Sequence[str], stdin: bytes, limit_s: float | None) -> ExecResult:
    """As `exec`, without the limit of a command; of what it says, the end."""
    if not isinstance(sandbox, Programs):
        return await sandbox.exec(argv, stdin, limit_s, MAX_ANSWER_BYTES)
    said, cut = {"stdout": bytearray(), "stderr": bytearray()}, 0
    status: int | None = None

    async def hear(receive: Callable[[], Awaitable[bytes]], into: bytearray) -> None:
        nonlocal cut
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                into += await receive()
                over = max(0, len(into) - MAX_ANSWER_BYTES)
                cut += over
                del into[:over]

    with anyio.move_on_after(limit_s) as limit:
        async with sandbox.program(argv, "", errors=True) as program, anyio.create_task_group() as group:
            group.start_soon(hear, program.receive, said["stdout"])
            group.start_soon(hear, program.receive_error, said["stderr"])
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await program.send(stdin)
                await program.send_eof()
            with suppress(SandboxDied):
                status = await program.wait()
            said["stderr"] += program.error.encode()
    if limit.cancelled_caught:
        status = 124
    if status is None:
        raise SandboxDied("the sandbox ended before the program")
    out, err = (bytes(said[name]) for name in ("stdout", "stderr"))
    return ExecResult(exit_code=status, stdout=out, stderr=err, timed_out=limit.cancelled_caught, truncated_bytes=cut)


WRAP = BotSpec(
    name=NAME,
    summary="another agent, or any program, in the sandbox: stockade wrap -- COMMAND",
    prompt="",
    tools=(),
    budget=Budget(max_turns=0, timeout_s=0.0),
    bot=Wrapped(),
)


def bot_spec(bot: Wrapped) -> BotSpec:
    """A bot of that program, with what its preset sets unless the user does."""
    preset = bot.preset
    held = tuple(one for one in preset.credentials if os.environ.get(one.partition("@")[0]))
    needs = {"net": ",".join(preset.hosts), "credential": held}
    return WRAP.model_copy(
        update={
            **({"name": preset.bot or preset.name, "summary": preset.summary} if bot.carry is None else {}),
            "budget": Budget(max_turns=0, timeout_s=HEADLESS_S if bot.carry is None else 0.0),
            "settings": {**{key: value for key, value in needs.items() if value}, **preset.settings},
            "bot": bot,
        }
    )
