"""A run on record goes on: after a crash, after it was stopped, or after its end with a new task.

Nothing is run again. An action that was under way when the run was cut is reported to the bot as unknown; its files are
those of the last checkpoint, which whoever calls this has restored before (runtime does). The conversation is the same
fold over the same events, so the next request begins with every byte of the last one.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from stockade.core.actions import Finish, Unknown
from stockade.core.errors import UsageError
from stockade.core.events import (
    ActionFinished,
    AnswerUnderstood,
    ChangesApplied,
    ChangesDiscarded,
    ChangesUndone,
    CheckFinished,
    Checkpoint,
    MessageInjected,
    ModelAnswered,
    ModelStarted,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
    StopReason,
)
from stockade.core.secrets import without_marks
from stockade.core.text import reachable
from stockade.loop.context import Context
from stockade.loop.conversation import DECIDED, effective
from stockade.loop.record import Record
from stockade.loop.run import Dependencies, run_to_completion
from stockade.loop.state import RunState
from stockade_sandbox.policy import Network
from stockade_sandbox.results import FolderLayer

_SHELL_S = 20.0
_CUT: dict[StopReason, str] = {
    "user": "The run was interrupted and goes on now.",
    **dict.fromkeys(("turns", "time", "tokens", "cost"), "The run had used up what it was given; it has more now."),
    "loop": "The run was stopped as the same action gave the same result again and again; it goes on now.",
    "gave_up": "The run was stopped as you had given up; it goes on now.",
    "unreadable": "The run was stopped as your answers held no action; it goes on now.",
}
_DECIDED: dict[type[RunEvent], str] = {
    ChangesApplied: "Your changes were accepted: they are in the folder now.",
    ChangesUndone: "Your changes were taken back: the folder is as it was before them.",
    ChangesDiscarded: "Your changes were thrown away: the folder is as it was before them.",
}
_FAILED = "The run was cut by a failure that was not yours, and goes on now."


async def resume(history: Sequence[RunEvent], resumed: RunResumed, parts: Dependencies) -> RunFinished:
    """From `resumed` to the next end. `history` is the run's record, whole; errors are those of loop.run.run."""
    record = Record(first_event(history).run_id, parts.store, Context(parts.protocol), parts.on_event, parts.redactor)
    for event in history:
        record.state.apply(event)
        record.context.apply(event)
    pending = pending_finish(history) if resumed.task is None else None
    in_flight = record.state.in_flight
    events: list[RunEvent] = [resumed]
    if in_flight is not None:
        at = record.state.last_at  # not `now`: nobody's time has passed since
        unknown = ActionFinished(at=at, turn=in_flight.turn, step=in_flight.step, observation=Unknown())
        events.insert(0, unknown)
    await record.add(*events)
    why = _cut(history) if resumed.task is None else ""
    started = effective(first_event(history), resumed)
    network = started.policy.network
    changed = "" if network == last_network(history) else f"What you can reach from now on: {reachable(network)}."
    was_cut = in_flight is not None
    again = _Again(parts, record, why, was_cut, decided(history), resumed.lost, pending, changed, resumed.live)
    return await run_to_completion(started, parts, record, again.begin)


def pending_finish(history: Sequence[RunEvent]) -> Finish | None:
    """The bot's word that it is done, when the run was cut before anything came of it."""
    for index in range(len(history) - 1, -1, -1):
        match history[index]:
            case AnswerUnderstood() as understood:
                done = sum(isinstance(event, ActionFinished) for event in history[index:])
                step = understood.answer.steps[done] if done < len(understood.answer.steps) else None
                return step.action if step is not None and isinstance(step.action, Finish) else None
            case MessageInjected() | CheckFinished():
                return None
            case RunFinished(status="done"):
                return None
            case _:
                pass
    return None


def _cut(history: Sequence[RunEvent]) -> str:
    """Why the run was not under way, in words for the bot."""
    last = next((event for event in reversed(history) if isinstance(event, RunFinished | RunResumed)), None)
    reason = last.reason if isinstance(last, RunFinished) else "user"
    return _CUT.get(reason, _FAILED)


def decided(history: Sequence[RunEvent]) -> type[RunEvent] | None:
    """What the user has done with the changes since the run was last under way."""
    for event in reversed(history):
        match event:
            case ChangesApplied() | ChangesUndone() | ChangesDiscarded():
                return type(event)
            case RunFinished() | RunResumed() | RunStarted():
                return None
            case _:
                pass
    return None


def shell_script(state: RunState) -> str:
    """Bash that makes a new shell what the old one was, as far as that is on record; empty when nothing is."""
    exports = without_marks(state.checkpoint.exports if state.checkpoint else None)
    script = f"{exports or ''}\n" + (f"cd -- {shlex.quote(state.cwd)}" if state.cwd else "")
    return script if script.strip() else ""


@dataclass(frozen=True, slots=True)
class _Again:
    """The first things in the new sandbox: the shell as it was as far as that is known, and a word to the bot."""

    parts: Dependencies
    record: Record
    why: str
    was_cut: bool
    decided: type[RunEvent] | None
    lost: tuple[str, ...]
    pending: Finish | None
    network: str
    """What can be reached from now on, where that is something else."""
    live: bool
    """The sandbox was up all the time."""

    async def begin(self) -> Finish | None:
        state = self.record.state
        shell = "" if self.live else await self._shell(state)
        text = " ".join(line for line in (self.why, shell, self._files(state), self.network) if line)
        await self._keep(state)
        if text:
            turn = state.turns + 1
            await self.record.add(MessageInjected(at=self.parts.clock.now(), turn=turn, source="resume", text=text))
        return self.pending

    async def _keep(self, state: RunState) -> None:
        """What the folders are now, where they are new ones."""
        files = await self.parts.snapshots.keep() if self.parts.snapshots is not None else ()
        last = state.checkpoint
        if any(files) and files != (last.files if last else ()):
            exports = last.exports if last else None
            kept = Checkpoint(at=self.parts.clock.now(), turn=state.turns, files=files, exports=exports)
            await self.record.add(kept)

    async def _shell(self, state: RunState) -> str:
        exports = state.checkpoint.exports if state.checkpoint else None
        script = shell_script(state)
        if not script:
            return "The shell is new."
        output = await self.parts.sandbox.run(script, _SHELL_S)
        where = f" in {output.cwd}" if output.cwd else ""
        kept = " The exported variables are set again." if exports and output.exit_code == 0 else ""
        return (
            f"The shell is new, it is{where or ' there'}.{kept} Other variables, functions, background processes and"
            " files outside the folder are gone."
        )

    def _files(self, state: RunState) -> str:
        if self.lost:
            return (
                f"What you wrote to {', '.join(self.lost)} before is lost: the folder is as the user has it. Look at it"
                " again before you go on."
            )
        if self.decided is not None:
            return (self.live and DECIDED.get(self.decided)) or _DECIDED[self.decided]
        if self.was_cut and any(layer.strategy != "direct" for layer in state.layers):
            return "What the interrupted action may have written to the folder was taken back."
        return ""


def last_network(history: Sequence[RunEvent]) -> Network:
    """What the run could reach when it was last under way."""
    resumed = (event.network for event in reversed(history) if isinstance(event, RunResumed))
    return next((network for network in resumed if network is not None), first_event(history).policy.network)


def first_event(history: Sequence[RunEvent]) -> RunStarted:
    """UsageError for what is no record of a run."""
    if not history or not isinstance(first := history[0], RunStarted):
        raise UsageError("the record does not begin with run_started")
    return first


_BETWEEN = (RunFinished, RunResumed, ChangesApplied, ChangesUndone, ChangesDiscarded, SandboxStarted, ModelStarted)


def up_to(history: Sequence[RunEvent], turn: int) -> list[RunEvent]:
    """The events up to the end of `turn`; 0 is before the first. UsageError when there is no such turn."""
    last = max((event.turn for event in history if isinstance(event, ModelAnswered)), default=0)
    if not 0 <= turn <= last:
        raise UsageError(f"the run has no turn {turn}: it has {last}", f"--to 0 to {last}")
    end = next((index for index, event in enumerate(history) if getattr(event, "turn", 0) > turn), len(history))
    while end > 1 and isinstance(history[end - 1], _BETWEEN):
        end -= 1
    return list(history[:end])


def branch(
    events: Sequence[RunEvent], run_id: str, turn: int, layers: tuple[FolderLayer, ...], now: float
) -> list[RunEvent]:
    """The same events as those of run `run_id`, which writes to `layers`."""
    made: list[RunEvent] = []
    for event in events:
        match event:
            case RunStarted():
                origin = {"run_id": run_id, "parent": event.run_id, "parent_turn": turn, "at": now}
                made.append(event.model_copy(update=origin))
            case SandboxStarted():
                made.append(event.model_copy(update={"layers": layers}))
            case _:
                made.append(event)
    return made
