"""What guides a bot from outside: what is said to it, how it is sampled, what it may use, and when it must stop.

One object a run (Parts.steering). This one is for a bot with a task, which may always finish; autonomous.py has the one
for a bot that goes on until somebody stops it.
"""

from typing import ClassVar

from stockade.core.actions import Action, Refused, Step, WriteFile
from stockade.core.events import Nudged, RunStarted, StopReason, TurnsForgotten
from stockade.core.messages import Sampling
from stockade.core.ports import Clock, Sandbox
from stockade.core.tools import Offered
from stockade.loop import stuck
from stockade.loop.advice import before, failing, ways
from stockade.loop.advice.review import is_review
from stockade.loop.advice.said import Said
from stockade.loop.record import Record
from stockade.loop.state import RunState

MAX_UNREADABLE = 3
WARMEST = 1.2
WARMER_UNREADABLE = 0.4
WARMER_FORGOTTEN = 0.4
DRY = 0.8


class Steering:
    """Decides by the run's state alone, so that a run that goes on is guided as if it had never stopped."""

    finishes: ClassVar[bool] = True
    """Whether the bot can come to an end, and is told when its budget does."""

    def opening(self, state: RunState) -> tuple[Step, ...]:
        """Scripted actions before the first turn; none for most bots, none when the run is under way."""
        return ()

    async def before(self, record: Record, sandbox: Sandbox, clock: Clock, turn: int) -> None:
        """Puts on record what the bot is told before `turn`. Raises SandboxDied."""
        if (nudge := stuck.nudge_text(record.state)) is not None:
            started = _advised(record.state)
            way = await ways.to_be_kept(started, record.state, sandbox) if started else None
            if way is None and (fails := failing.again(record.state)) is not None:
                await record.add(TurnsForgotten(at=clock.now(), turn=turn, first_turn=fails[0], text=fails[1]))
                return
            said = Said("You know this result. ", way) if way else Said(nudge)
            told = Nudged(at=clock.now(), turn=turn, why="loop", text=said.spoken, command=said.command)
            await record.add(told)

    def sampling(self, base: Sampling, state: RunState) -> Sampling:
        """Warmer when the bot repeats itself or could not be understood."""
        forgotten = WARMER_FORGOTTEN * len(state.forgotten) * (state.forgot_at == len(state.done))
        asked = after_unreadable(base, state.unreadable)
        return warmed(asked, stuck.extra_temperature(state) + forgotten)

    def other_sampling(self, base: Sampling, state: RunState) -> Sampling | None:
        """The same for the record, where it is not what the run began with."""
        sampling = self.sampling(base, state)
        return sampling if sampling != base else None

    def offered(self, state: RunState, tools: tuple[Offered, ...]) -> tuple[Offered, ...]:
        """The tools for the next turn. Told to run a command, a bot may run any, and does nothing else: a small model
        would write the command into the file that it is for.
        """
        return ("shell",) if "shell" in tools and _told_to_run(state) else stuck.offered(state, tools)

    async def refuses(self, action: Action, state: RunState, sandbox: Sandbox) -> Refused | None:
        """Why `action` is not done, for the bot; None when it is. Raises SandboxDied."""
        if (started := _advised(state)) is None:
            return None
        text = await before.doubt(action, started.task, state.done, (started.system_prompt,), sandbox)
        said = Said.of(text) if text is not None else None
        return Refused(reason=said.spoken, instead=said.command) if said is not None else None

    def over(self, state: RunState) -> tuple[StopReason, str] | None:
        """Why the run must stop, beside its budget."""
        if state.unreadable >= MAX_UNREADABLE:
            return "unreadable", f"{state.unreadable} answers in a row held no action"
        loop = stuck.is_loop(state)
        return ("loop", loop) if loop is not None else None


def _advised(state: RunState) -> RunStarted | None:
    """The first event of a run whose bot is to be advised."""
    return state.started if state.started is not None and state.started.advice else None


def _told_to_run(state: RunState) -> bool:
    """Whether the last that the bot was told is a command: by a question before `write_file`, a review or a nudge."""
    last = state.nudges[-1] if state.nudges else None
    if last is not None and last.turn == state.turns + (0 if is_review(last) else 1):
        return bool(last.command)
    done = state.done[-1] if state.done and state.done[-1].turn == state.turns else None
    if done is None or not isinstance(done.step.action, WriteFile):
        return False
    return isinstance(done.observation, Refused) and bool(done.observation.instead)


def after_unreadable(base: Sampling, attempts: int) -> Sampling:
    """Warmer with each answer in a row that could not be read, and held back from going on and on in the same words:
    that is how nearly all of them come about.
    """
    if not attempts:
        return base
    against = max(base.dry_multiplier or 0.0, DRY)
    return warmed(base, WARMER_UNREADABLE * attempts).model_copy(update={"dry_multiplier": against})


def warmed(base: Sampling, extra: float) -> Sampling:
    """`base` with a higher temperature, but never above the warmest that still makes sense."""
    if extra <= 0:
        return base
    before = base.temperature or 0.0
    return base.model_copy(update={"temperature": max(before, min(WARMEST, before + extra))})
