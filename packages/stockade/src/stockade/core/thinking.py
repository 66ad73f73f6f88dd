"""Thinking aloud that a server leaves in the text of an answer, and where it ends."""

import re

_BEGINNING = re.compile(r"\s*(?:<(think|thinking)>|(\[THINK\]))")
_FENCE = re.compile(r"^[ \t]*(`{3,})[ \t]*([^`\n]*?)[ \t\r]*$", re.MULTILINE)
_LONE_END = re.compile(r"</(?:think|thinking)>[ \t]*$", re.MULTILINE)


def spoken_part(text: str) -> str | None:
    """`text` without a thinking part at its beginning; None where that part has no end.

    Templates of DeepSeek-R1, QwQ and Qwen3-Thinking open the tag in the prompt: in their texts only its end is
    found. It counts at the end of a line and outside of a fence, so that a file about such tags stays whole.
    """
    if found := _BEGINNING.match(text):
        end = f"</{found[1]}>" if found[1] else "[/THINK]"
        _, ended, rest = text.partition(end)
        return rest if ended else None
    lone = _LONE_END.search(text) if "</think" in text else None
    if lone is None or "<think" in (before := text[: lone.start()]) or _in_fence(before):
        return text
    return text[lone.end() :]


def _in_fence(text: str) -> bool:
    """Whether a fence is open at the end of `text`; one ends at the next bare one that is at least as long."""
    ticks = 0
    for fence in _FENCE.finditer(text):
        if not ticks:
            ticks = len(fence[1])
        elif len(fence[1]) >= ticks and not fence[2]:
            ticks = 0
    return ticks > 0
