"""Thinking aloud that a server leaves in the text of an answer, and where it ends."""

import re

_BEGINNING = re.compile(r"\s*(?:<(think|thinking)>|(\[THINK\]))")
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
    if lone is None or "<think" in (before := text[: lone.start()]) or before.count("```") % 2:
        return text
    return text[lone.end() :]
