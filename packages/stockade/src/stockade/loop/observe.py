"""An observation in words for the model: exact, clipped, in sentences. An exit status is a number, not a verdict.

What an autonomous bot is told of its own rules is only what changed, so that the prompt before it stays as it was.
"""

from stockade.core.actions import Answered, Failed, FileContent, FileWritten, Observation, Refused, ToolResult
from stockade.core.events import SelfConfigChanged
from stockade.loop.file_actions import written
from stockade_sandbox.results import CommandOutput

_SHELL_EVENTS = {
    "shell_restored": "The command ended the shell; it goes on with the state from before the command.",
    "shell_restarted": "The shell was ended and started anew; variables and functions are lost.",
    "shell_lost_state": "The shell lost its state.",
    "shell_impersonated": "Something else reported in the shell's place; the shell was restarted.",
}


def clip(text: str, limit: int) -> str:
    """`text` in at most about `limit` characters: its head and its tail, and how much is missing between them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"


def describe(observation: Observation, limit: int) -> str:
    """What the model is told, in at most about `limit` characters plus a line of status."""
    match observation:
        case CommandOutput():
            return _command(observation, limit)
        case FileContent(text=text, first=first, last=last, total=total):
            part = "" if (first, last) == (min(1, total), total) else f"Lines {first} to {last} of {total}:\n"
            return part + (clip(text, limit) or "The file is empty.")
        case FileWritten():
            return written(observation)
        case ToolResult(status=status, text=text):
            return clip(f"The tool has failed: {text}" if status == "error" else text or "There is no result.", limit)
        case Answered(text=text):
            return text
        case Refused(reason=reason):
            return f"This was not run: {reason}"
        case Failed(message=message):
            return f"This has failed: {clip(message, limit)}"
        case _:
            return "The run was interrupted here: it is unknown whether this ran. Look before doing it again."


def _command(result: CommandOutput, limit: int) -> str:
    text = clip(result.output.decode(errors="backslashreplace").rstrip("\n"), limit)
    if result.timed_out:
        how = f"The command took too long: after {result.duration_s:.0f} s it and all it had started were ended"
    else:
        how = (
            f"The command ended with exit status {result.exit_code}"
            if result.exit_code
            else "The command has succeeded"
        )
    lines = [f"{how}. Output:", text] if text else [f"{how}; it printed nothing."]
    if result.truncated_bytes:
        lines.append(f"({result.truncated_bytes} bytes were cut from the middle of the output)")
    if result.shell_event and not result.timed_out:
        lines.append(_SHELL_EVENTS[result.shell_event])
    return "\n".join(lines)


LINE = "====="
NO_RULES = SelfConfigChanged(at=0.0, turn=0)


def changed(now: SelfConfigChanged, before: SelfConfigChanged | None, task: str) -> str:
    """In words for the bot; "" when nothing is to be said. `task` is the goal that holds without a goal file."""
    last = before or NO_RULES
    parts: list[str] = []
    if now.goal != last.goal:
        parts.append(f"Your goal from now on: {now.goal}" if now.goal else f"Your goal is again: {task}")
    if now.prompt != last.prompt:
        parts.append(whole_prompt(now) or "Your part of the prompt, system.md, is gone.")
    if now.sampling != last.sampling:
        parts.append(f"In force from config.json: {sampling_words(now)}.")
    if now.refused and now.refused != last.refused:
        parts.append("This was not taken, what held before it goes on holding:\n" + "\n".join(now.refused))
    return "\n".join(parts)


def whole_prompt(now: SelfConfigChanged) -> str:
    return f"Your part of the prompt, from system.md:\n{LINE}\n{now.prompt}\n{LINE}" if now.prompt else ""


def sampling_words(now: SelfConfigChanged) -> str:
    args = now.sampling.model_dump(exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in args.items()) or "nothing, the defaults hold"
