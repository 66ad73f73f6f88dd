"""Guides a bot that lives until somebody stops it: its own rules each turn, and out of every loop it runs into.

Small models copy what stands in their prompt; a loop that stands there grows. So repetitions are answered in steps: a
word and warmer sampling; the repeated action is not done any more; what goes round is taken out of the prompt, each
time more of what led to it, with a suggestion of something else; the repeated tool is withheld for a turn. The run
never ends for it (docs/shell.md).
"""

from dataclasses import dataclass
from typing import ClassVar

from stockade.core.actions import Action, Refused, Step
from stockade.core.events import Autonomy, Nudged, OwnRules, StopReason, TurnsForgotten
from stockade.core.messages import Sampling
from stockade.core.ports import Clock, Sandbox
from stockade.core.tools import Offered, name_of
from stockade.loop import circles, own_files, stuck
from stockade.loop.record import Record
from stockade.loop.state import RunState
from stockade.loop.steering import Steering, after_unreadable

SAY_AFTER, REFUSE_AFTER, FORGET_AFTER, WITHHOLD_AFTER = 2, 3, 5, 6
FORGET_AGAIN_AFTER = 2
"""Repetitions soon after turns were forgotten: that did not help yet."""
SOON = 24
"""Actions."""
DEEPER_TURNS = 6
MAX_UNREADABLE = 20
_WARMER_STEP, _MOST_WARM = 0.15, 1.5
_PENALTY_STEP, _PENALIZED_TOKENS = 0.25, 1024
SUGGESTIONS = (
    "List your folder, choose one file in it and improve it.",
    "Write a small program of a few lines that you have not written yet, and run it.",
    "Write a smaller goal for the next hour into {goal}.",
    "Look at something on this machine that you have not looked at: a command's --help, a file below /usr/share.",
    "Write into {prompt} in two lines what you have learned and what you will not try again.",
    "Read one of your own programs, and add one test to it.",
)


@dataclass(frozen=True, slots=True)
class Autonomous(Steering):
    """`folder` is where the bot's own files are, inside. `breaking` False leaves it in its loops, for comparison."""

    finishes: ClassVar[bool] = False
    may: Autonomy
    folder: str
    intro: tuple[Step, ...] = ()
    breaking: bool = True

    def opening(self, state: RunState) -> tuple[Step, ...]:
        under_way = state.turns or state.done or state.in_flight is not None
        return () if under_way or not self.may.intro else self.intro

    async def before(self, record: Record, sandbox: Sandbox, clock: Clock, turn: int) -> None:
        await self._read(record, sandbox, clock, turn)
        if not self.breaking:
            return
        state = record.state
        count = circles.pressure(state.done)
        if count >= (FORGET_AGAIN_AFTER if _forgot_lately(state) else FORGET_AFTER) and _new_since(state):
            await record.add(self._forgotten(state, clock, turn))
        elif (count >= SAY_AFTER or stuck.worst(state.done).count > SAY_AFTER) and not _just_told(state, turn):
            words = "That gave the same again. Nothing new comes of it: do something else now."
            await record.add(Nudged(at=clock.now(), turn=turn, why="loop", text=words))

    async def _read(self, record: Record, sandbox: Sandbox, clock: Clock, turn: int) -> None:
        """What is in force goes on record when it is not what was in force before."""
        state = record.state
        files = own_files.OwnFiles(sandbox, self.folder, self.may, record.context.window)
        found = await files.read(turn, clock.now(), state.own)
        if not _same(found, state.own):
            await record.add(found)

    def _forgotten(self, state: RunState, clock: Clock, turn: int) -> TurnsForgotten:
        """The turns since what goes round was done first; more of what was before, each time that did not help."""
        first = circles.began(state.done)
        if _forgot_lately(state):
            first = min(first, state.forgotten[-1].first_turn - DEEPER_TURNS)
        went_round = ", ".join(circles.what_went_round(state.done, circles.LATELY))
        place = {"goal": f"{self.folder}/{own_files.GOAL}", "prompt": f"{self.folder}/{own_files.PROMPT}"}
        suggestion = SUGGESTIONS[len(state.forgotten) % len(SUGGESTIONS)].format(**place)
        text = f"You then went round in circles: {went_round}. That is over. Do something new now. {suggestion}"
        return TurnsForgotten(at=clock.now(), turn=turn, first_turn=max(1, min(first, turn)), text=text)

    def sampling(self, base: Sampling, state: RunState) -> Sampling:
        """What the bot has set itself, unless it cannot be understood with it; warmer in a loop."""
        if state.unreadable:
            return after_unreadable(base, state.unreadable % 3)
        sampling = own_files.over(base, state.own.sampling) if state.own is not None else base
        count = circles.pressure(state.done) if self.breaking else 0
        if count < SAY_AFTER:
            return sampling
        warm = max(sampling.temperature or 0.0, 0.7) + _WARMER_STEP * count
        other = {
            "temperature": max(sampling.temperature or 0.0, min(_MOST_WARM, warm)),
            "presence_penalty": min(2.0, (sampling.presence_penalty or 0.0) + _PENALTY_STEP * count),
            "repeat_last_n": _PENALIZED_TOKENS,
            "seed": None,
        }
        return sampling.model_copy(update=other)

    def offered(self, state: RunState, tools: tuple[Offered, ...]) -> tuple[Offered, ...]:
        """Every other turn of a long loop without the tool that it is made of."""
        count = circles.pressure(state.done) if self.breaking else 0
        if count < WITHHOLD_AFTER or state.turns % 2:
            return tools
        used = state.done[-1].step.action.tool
        return tuple(tool for tool in tools if name_of(tool) != used) or tools

    async def refuses(self, action: Action, state: RunState, sandbox: Sandbox) -> Refused | None:
        if not self.breaking or circles.pressure(state.done) < REFUSE_AFTER:
            return None
        if (count := circles.times(action, state.done)) < 2:
            return None
        return Refused(reason=f"you did this {count} times lately and know what comes of it: do something else")

    def over(self, state: RunState) -> tuple[StopReason, str] | None:
        if state.unreadable >= MAX_UNREADABLE:
            return "unreadable", f"{state.unreadable} answers in a row held no action"
        return None


def _just_told(state: RunState, turn: int) -> bool:
    return any(nudge.why == "loop" and nudge.turn + 1 >= turn for nudge in state.nudges[-2:])


def _forgot_lately(state: RunState) -> bool:
    return bool(state.forgotten) and len(state.done) - state.forgot_at < SOON


def _new_since(state: RunState) -> bool:
    """Something was done since turns were last forgotten."""
    return not state.forgotten or len(state.done) - state.forgot_at >= FORGET_AGAIN_AFTER


def _same(now: OwnRules, before: OwnRules | None) -> bool:
    last = before or OwnRules(at=now.at, turn=now.turn)
    return now == last.model_copy(update={"at": now.at, "turn": now.turn})
