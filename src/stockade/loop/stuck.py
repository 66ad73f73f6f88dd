"""Loops and nonsense noticed and answered: first a nudge with other sampling, then only `finish`, then a named stop.

Four signs, each counted in turns: the same action with the same outcome; up to eight such in rotation; other actions,
but always the same outcome; output given back as a comment or an `echo`, after which small models soon go in circles.
What has failed again and again ends the run also where the bot was made to forget it, or did other things in between.
"""

import re
from collections.abc import Sequence

from stockade.core.actions import CommandOutput, Failed, FileWritten, Refused, Shell
from stockade.core.tools import Offered
from stockade.loop.advice.review import is_review
from stockade.loop.state import Done, RunState, Sign

NUDGE_AFTER = 2
WITHHOLD_AFTER = 3
STOP_AFTER = 6
LONGEST_CYCLE = 8
_LOOKED_AT = STOP_AFTER + 2 * LONGEST_CYCLE
_SAME_OUTCOME_SLACK = 2
_SPREAD_SLACK = 2
_ECHOED_CHARS = 12
_ECHO = re.compile(r"""\s*(?:echo\s(?:\s*-[neE]+\s)?|#)(?P<text>[^|>;&]*)""")


def worst(done: Sequence[Done]) -> Sign:
    """The strongest sign in the last actions; its count is 0 when there is none."""
    return max(_looked_for(done), key=lambda sign: sign.count)


def _looked_for(done: Sequence[Done]) -> tuple[Sign, Sign, Sign]:
    recent = done[-_LOOKED_AT:]
    return _cycle(recent), _same_outcome(recent), _echoing(recent)


def _signs(state: RunState) -> tuple[Sign, Sign, Sign]:
    if state.signs is None:
        state.signs = _looked_for(state.since_anew)
    return state.signs


def _strongest(state: RunState) -> Sign:
    return max(_signs(state), key=lambda sign: sign.count)


def _cycle(done: Sequence[Done]) -> Sign:
    keys = [entry.key for entry in done]
    best = Sign(0, "", "")
    for period in range(1, LONGEST_CYCLE + 1):
        same = 0
        while same + period < len(keys) and keys[-1 - same] == keys[-1 - same - period]:
            same += 1
        # A rotation of several is noticed after its second round.
        count = same - period + 2 if same >= period else int(period == 1 and bool(keys))
        if count > best.count:
            what = (
                f"the same action gave the same result {count} times"
                if period == 1
                else f"the same {period} actions go round and round with the same results"
            )
            best = Sign(
                count,
                what,
                "That gave the same result again. If the task is done, finish; else do something different.",
            )
    again = keys.count(keys[-1]) - _SPREAD_SLACK if keys else 0
    seen = done[-1].observation if done else None
    # A check that fails again after each edit is work; looking again and again at what is well is not.
    if again > best.count and isinstance(seen, CommandOutput) and seen.chunks and not seen.exit_code:
        what = f"the same action gave the same result {again + _SPREAD_SLACK} times, with others in between"
        best = Sign(again, what, "You know this result. If the task is done, finish; else do something different.")
    return best


def _same_outcome(done: Sequence[Done]) -> Sign:
    """Other actions, the same words back. Success in silence says nothing and does not count."""
    same = 0
    for entry in reversed(done):
        if entry.key[1] != done[-1].key[1] or not _telling(entry):
            break
        same += 1
    return Sign(
        max(0, same - _SAME_OUTCOME_SLACK + 1),
        f"{same} actions in a row gave the same result",
        "Different actions gave the same result. Look at the cause first, or finish and say what is in the way.",
    )


def _telling(entry: Done) -> bool:
    seen = entry.observation
    return isinstance(seen, Failed) or (isinstance(seen, CommandOutput) and bool(seen.chunks or seen.exit_code))


def _echoing(done: Sequence[Done]) -> Sign:
    count = 0
    while count < len(done) and says_nothing_new(done, len(done) - 1 - count):
        count += 1
    return Sign(
        count,
        f"{count} actions in a row only repeated output or comments",
        "A comment or an echo of earlier output does nothing. Run the next real command, or finish.",
    )


def says_nothing_new(done: Sequence[Done], at: int) -> bool:
    """A comment alone, or what the action before printed, given back."""
    action = done[at].step.action
    if not isinstance(action, Shell):
        return False
    command = action.command.strip()
    lines = [line.strip() for line in command.splitlines()]
    if all(line.startswith("#") for line in lines if line):
        return True
    before = done[at - 1].observation if at else None
    found = _ECHO.fullmatch(command)
    text = " ".join((found["text"].strip(" \t'\"") if found else command).split())
    if not isinstance(before, CommandOutput) or len(text) < _ECHOED_CHARS:
        return False
    if found is None and sum(len(chunk.text or "") for chunk in before.chunks) > 2 * len(command):
        return False
    said = " ".join(before.output.decode(errors="replace").split())
    return text in said if found else text == said


def nudge_text(state: RunState) -> str | None:
    """What to say to a bot that begins to go in circles, once a circle; None when it does not."""
    sign = _strongest(state)
    if (
        _was_kept(state)
        or sign.count < NUDGE_AFTER
        or (state.nudges and state.nudges[-1].why == "loop" and state.nudges[-1].turn + 1 >= state.turns)
    ):
        return None
    return sign.way_out


def offered(state: RunState, tools: tuple[Offered, ...]) -> tuple[Offered, ...]:
    """The tools for the next turn: a bot that goes on repeating itself may only finish.

    Constrained models copy their last answer at any temperature. Finishing does no harm: the bot is then shown what it
    has changed, and a check still decides. Other actions with the same outcome are a try at something: those go on.
    Shown its changes, a bot may see what is wrong: then it may act again; and shown that something is plainly not
    done, it cannot end in the very next turn. The default model says that it is still to be done, and ends.
    """
    if _was_reviewed(state):
        undone = state.nudges[-1].why == "undone"
        return tuple(tool for tool in tools if tool != "finish") or tools if undone else tools
    cycle, _, echoing = _signs(state)
    stuck = max(cycle.count, echoing.count)
    return ("finish",) if "finish" in tools and stuck >= WITHHOLD_AFTER else tools


def _was_kept(state: RunState) -> bool:
    """Whether the bot wanted to end, and has been told just now why it may not: that is enough for a turn."""
    return (
        bool(state.nudges) and state.nudges[-1].why not in ("loop", "budget") and state.nudges[-1].turn == state.turns
    )


def _was_reviewed(state: RunState) -> bool:
    """Whether the bot wanted to end, and has been shown its changes just now."""
    return bool(state.nudges) and is_review(state.nudges[-1]) and state.nudges[-1].turn == state.turns


def is_loop(state: RunState) -> str | None:
    """Why the run should stop now, or None."""
    sign = _strongest(state)
    if sign.count >= STOP_AFTER:
        return sign.what
    failed = _failed_again(state.done)
    return f"the same action failed in the same way {failed} times" if failed >= STOP_AFTER else None


def _failed_again(done: Sequence[Done]) -> int:
    """How often the last action has failed as it did now since anything was changed, however the run began anew.

    A check that fails again after each edit is work, and other actions in between are not.
    """
    count = 0
    if done and _failed(done[-1]):
        for entry in reversed(done):
            if entry.key == done[-1].key:
                count += 1
            elif _changed(entry):
                break
    return count


def _failed(entry: Done) -> bool:
    seen = entry.observation
    return isinstance(seen, Failed | Refused) or (isinstance(seen, CommandOutput) and bool(seen.exit_code))


def _changed(entry: Done) -> bool:
    """Whether it may have changed anything: of a command, that it said what it wrote, or went well in silence."""
    match entry.observation:
        case FileWritten(same=same):
            return not same
        case CommandOutput(exit_code=0, wrote=wrote, chunks=chunks):
            return bool(wrote) or not chunks
    return False


def extra_temperature(state: RunState) -> float:
    """How much warmer to sample, 0 when nothing repeats."""
    return min(0.8, 0.4 * max(0, _strongest(state).count - 1))
