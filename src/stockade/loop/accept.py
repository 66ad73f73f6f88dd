"""The bot ends: it is shown its changes once, and a check decides, or else its own word; else it may go on.

Without advice there is the check alone, and its word; so too when there is a check and no turn is left.
"""

from stockade.core.actions import Finish, Shell
from stockade.core.events import CheckFinished, Nudged, RunStarted, TurnsForgotten
from stockade.core.ports import Reviewer, Sandbox
from stockade.loop import gave_up
from stockade.loop.advice import anew, hollow, review
from stockade.loop.ending import Ending
from stockade.loop.kept import Checkpoints
from stockade.loop.record import Record
from stockade.loop.state import RunState

MAX_FAILED_CHECKS = 3


async def accept(
    finish: Finish,
    started: RunStarted,
    record: Record,
    checkpoints: Checkpoints,
    reviewer: Reviewer | None,
    *,
    last: bool = False,
) -> Ending | None:
    """None when there is something for the bot to do still; it has been told. `last`: no turn is left for it."""
    state, sandbox, clock = record.state, checkpoints.sandbox, checkpoints.clock
    advised = started.advice and not (last and started.check is not None)
    if advised and (told := await _advised(finish, started, state, reviewer, sandbox, clock.now())):
        await record.add(told)
        return None
    answer = hollow.spoken(finish.answer, started, state)
    if (command := started.check) is None:
        if gave_up.says_not_done(finish.answer):
            return Ending("stopped", "gave_up", gave_up.DETAIL, answer)
        return Ending("done", "finish", answer=answer)
    output = await sandbox.run(f"( {command}\n)")
    passed = output.exit_code == 0
    checked = CheckFinished(at=clock.now(), turn=state.turns, command=command, passed=passed, observation=output)
    await record.add(*await checkpoints.after(Shell(command=command), output, state), checked)
    if passed:
        return Ending("done", "finish", answer=answer, verified=True)
    if state.failed_checks >= MAX_FAILED_CHECKS:
        return Ending("done", "check_failed", "the check does not pass", answer, verified=False)
    return None


async def _advised(
    finish: Finish, started: RunStarted, state: RunState, reviewer: Reviewer | None, sandbox: Sandbox, now: float
) -> Nudged | TurnsForgotten | None:
    """What the bot is to be told before it may end."""
    if (found := await review.of_changes(started, state, reviewer, sandbox)) is not None:
        why, said = found
        return Nudged(at=now, turn=state.turns, why=why, text=said.spoken, command=said.command)
    if (again := await anew.begin(started, state, reviewer, sandbox, now)) is not None:
        first, text = again
        return TurnsForgotten(at=now, turn=state.turns + 1, first_turn=first, text=text, anew=True)
    return gave_up.nudge(finish, started, state, now) or hollow.nudge(finish, started, state, now)
