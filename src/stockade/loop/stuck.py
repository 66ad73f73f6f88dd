"""Loops noticed and answered: first a nudge with other sampling, then a named stop.

A loop is the same action with the same observation, or two such pairs in alternation.
"""

from collections.abc import Sequence

from stockade.loop.state import Done, RunState

NUDGE_AFTER = 2
WITHHOLD_AFTER = 3
STOP_AFTER = 6


def repeats(done: Sequence[Done]) -> int:
    """How often the last action came in a row with the same outcome; a ping-pong of two counts its rounds."""
    keys = [entry.key for entry in done[-2 * STOP_AFTER :]]
    if not keys:
        return 0
    same = 0
    for key in reversed(keys):
        if key != keys[-1]:
            break
        same += 1
    if same > 1 or len(keys) < 4:
        return same
    rounds = 0
    for newer, older in zip(keys[::-1][::2], keys[::-1][1::2], strict=False):
        if (newer, older) != (keys[-1], keys[-2]):
            break
        rounds += 1
    return max(same, rounds)


def nudge_text(state: RunState) -> str | None:
    """What to say to a bot that begins to go in circles, once a circle; None when it does not."""
    count = repeats(state.done)
    if count < NUDGE_AFTER or (
        state.nudges and state.nudges[-1].why == "loop" and state.nudges[-1].turn + 1 >= state.turns
    ):
        return None
    return "That gave the same result again. Do something different, or finish if the task is done."


def offered(state: RunState, tools: tuple[str, ...]) -> tuple[str, ...]:
    """The tools for the next turn: a bot that goes on repeating itself may only finish.

    Constrained models copy their last answer at any temperature. Finishing does no harm: the bot is then shown what it
    has changed, and a check still decides.
    """
    return ("finish",) if "finish" in tools and repeats(state.done) >= WITHHOLD_AFTER else tools


def is_loop(state: RunState) -> str | None:
    """Why the run should stop now, or None."""
    count = repeats(state.done)
    return f"the same action gave the same result {count} times" if count >= STOP_AFTER else None


def extra_temperature(state: RunState) -> float:
    """How much warmer to sample, 0 when nothing repeats."""
    return min(0.8, 0.4 * max(0, repeats(state.done) - 1))
