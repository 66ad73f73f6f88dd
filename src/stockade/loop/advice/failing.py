"""The same action that has failed twice: its turns leave the prompt, and a line that it does not work stands there.

A small model that answers under a schema copies its last answers at any temperature; what is not before its eyes it
cannot copy (docs/small-models.md).
"""

from stockade.core.actions import CommandOutput, Failed, FileWritten, Observation, Refused
from stockade.loop.advice.wanted import TO_EMPTY
from stockade.loop.circles import spelled
from stockade.loop.state import RunState

AFTER = 2
MAX_ERROR_CHARS = 200
MAX_TRIED_CHARS = 30
"""Of what was tried: more of it would be copied again."""


def again(state: RunState) -> tuple[int, str] | None:
    """The turn in which what fails was done first, and what to say in place of all since then; None when it is not so.

    Only for the last action, with the same outcome each time, and nothing else in between.
    """
    if not state.done or (state.forgotten and state.forgot_at > len(state.done) - AFTER):
        return None
    last = state.done[-1]
    same = 0
    while same < len(state.done) and state.done[-1 - same].key == last.key:
        same += 1
    task = state.started.task if state.started is not None else ""
    if same < AFTER or (error := _error(last.observation, task)) is None:
        return None
    first = state.done[-same].turn
    tried = spelled(last.step.action).strip("`")
    tried = tried if len(tried) <= MAX_TRIED_CHARS else f"{tried[:MAX_TRIED_CHARS].rpartition(' ')[0] or tried[:8]} ..."
    text = f"You have tried `{tried}` {same} times, and it does not work: {error}\nDo it in another way."
    return (first, text) if first >= 1 else None


def _error(seen: Observation, task: str) -> str | None:
    """What went wrong, in a line; None when nothing plainly did."""
    match seen:
        case CommandOutput() if seen.exit_code:
            lines = seen.output.decode(errors="replace").strip().splitlines()
            return (lines[-1] if lines else f"exit status {seen.exit_code}")[:MAX_ERROR_CHARS]
        case CommandOutput(wrote=words) if " has a syntax error" in words or _is_blank(words, task):
            return " ".join(words.split("\n")[:2])[:MAX_ERROR_CHARS]
        case FileWritten(wrong=words) if words:
            return " ".join(words.split("\n")[:2])[:MAX_ERROR_CHARS]
        case Failed(message=words) | Refused(reason=words):
            return words.split("\n")[0][:MAX_ERROR_CHARS]
        case _:
            return None


def _is_blank(words: str, task: str) -> bool:
    return " is empty." in words and not TO_EMPTY.search(task)
