"""An observation in words for the model: exact, clipped, without decoration it could copy."""

from stockade.core.actions import (
    Answered,
    CommandOutput,
    Failed,
    FileContent,
    FileWritten,
    Observation,
    Refused,
    ToolResult,
)

_SHELL_EVENTS = {
    "shell_restored": "the command ended the shell; it goes on with the state from before the command",
    "shell_restarted": "the shell was ended and started anew; variables and functions are lost",
    "shell_lost_state": "the shell lost its state",
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
            part = "" if (first, last) == (min(1, total), total) else f"[lines {first}-{last} of {total}]\n"
            return part + (clip(text, limit) or "[the file is empty]")
        case FileWritten(path=path, size=size):
            return f"[wrote {size} bytes to {path}]"
        case ToolResult(status=status, text=text):
            return clip(f"[error] {text}" if status == "error" else text or "[no result]", limit)
        case Answered(text=text):
            return clip(text, limit)
        case Refused(reason=reason):
            return f"[not run: {reason}]"
        case Failed(message=message):
            return f"[error: {clip(message, limit)}]"
        case _:
            return "[the run was interrupted here: it is unknown whether this ran; look before doing it again]"


def _command(result: CommandOutput, limit: int) -> str:
    text = clip(result.output.decode(errors="backslashreplace").rstrip("\n"), limit)
    lines = [text]
    if result.truncated_bytes:
        lines.append(f"[{result.truncated_bytes} bytes of output were cut from the middle]")
    if result.timed_out:
        lines.append(f"[timed out after {result.duration_s:.0f} s; everything it had started was ended]")
    if result.shell_event and not result.timed_out:
        lines.append(f"[{_SHELL_EVENTS[result.shell_event]}]")
    lines.append(f"[exit status {result.exit_code}]" if text else f"[exit status {result.exit_code}, no output]")
    return "\n".join(line for line in lines if line)
