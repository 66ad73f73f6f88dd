"""JSON as small models write it: in fences, with prose around, trailing commas, missing brackets, raw newlines.

What cannot be read is an error, never an empty success.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import REPEATS, ModelAnswer
from stockade.core.text import spoken_part

MAX_ANSWER_CHARS = 4_000_000
MAX_DEPTH = 64
_WORDS = {"True": "true", "False": "false", "None": "null"}
_JSON_ESCAPES, _TWO_READINGS = frozenset('"\\/bfnrtu'), frozenset("bfnrt")
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:([{\[])|([}\]])|([,:])|("[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')"""
    r"""|([\w-]+)(?=[ \t\r\n]*:)|([^\s{}\[\],:"']+))""",
    re.DOTALL,
)
"""What opens, what closes, a comma or colon, a text, a name without quotes, any other word."""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
SURROGATES = re.compile("[\ud800-\udfff]")
HALF = "the answer holds half a character (a lone surrogate), which UTF-8 cannot carry"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        for name, value in pairs:
            _once(found, name, value)
    return found


def _once(found: dict[str, Any], name: str, value: Any) -> None:
    if name in found and found[name] != value:
        raise UnreadableAnswer(f"{name[:40]!r} is given twice")


def _finite(word: str) -> float:
    if math.isfinite(number := float(word)):
        return number
    raise UnreadableAnswer(f"{word[:20]!r} is no number of JSON")


_NEXT = re.compile(r"(?:[\s,\[\]]|```(?:json)?|</?tools?(?:_calls?)?>)*(?=\{)")
"""What models put between calls that they write as text, up to the next."""
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite)


def first_value(text: str, opening: str = "{[") -> Any:
    """The first object or list in `text` (one of `opening`). UnreadableAnswer when there is none.

    A value that the text ends in the middle of is closed where it stops, so that a missing last bracket does no harm.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise UnreadableAnswer(f"the answer is too long ({len(text)} characters)")
    return _first(text, opening)[0]


def only_object(text: str) -> Any:
    """`first_value` of a text that may hold one object only: a second one would be dropped without a word."""
    value, end = _first(text, "{")
    if "{" in text[end:]:
        raise UnreadableAnswer("one object stands behind another: a call has one object of arguments")
    return value


def closed_object(text: str) -> Any:
    """The first object of `text` where it is JSON without any help; None elsewhere."""
    found = _strict(text, max(0, text.find("{")))
    return found[0] if found is not None else None


def _first(text: str, opening: str) -> tuple[Any, int]:
    """The value, and where it ends."""
    starts = [index for index in (text.find(mark) for mark in opening) if index >= 0]
    if not starts:
        raise UnreadableAnswer("the answer holds no JSON object")
    position = min(starts)
    if (found := _strict(text, position)) is not None:
        return found
    try:
        mended, end = _mended(text, position)
        if (read := _strict(mended, 0)) is None:
            _DECODER.decode(mended)
            raise ValueError("it is nested too deeply")
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer(f"the JSON of the answer cannot be read: {str(error)[:160]}") from None
    return read[0], end


def spoken(text: str) -> str:
    """What a model says after thinking aloud (core/thinking.py); nothing while it has not come to an end with that.

    UnreadableAnswer for an answer of absurd length, which nothing below looks at, and for one that no file can hold.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise UnreadableAnswer(f"the answer is too long ({len(text)} characters)")
    if SURROGATES.search(text):
        raise UnreadableAnswer(HALF)
    return spoken_part(text) or ""


def cut_off(answer: ModelAnswer) -> UnreadableAnswer:
    """Of one that is cut: why."""
    if answer.finish_reason == REPEATS:
        return UnreadableAnswer("the answer said one thing over and over and was ended: say it once")
    return UnreadableAnswer("the answer was cut off because it is too long: do it in smaller steps")


def whole(answer: ModelAnswer) -> str:
    """`spoken` of an answer that has come to its end. UnreadableAnswer for one that is cut."""
    if answer.cut:
        raise cut_off(answer)
    return spoken(answer.content)


def objects(text: str, most: int = 32) -> Iterator[dict[str, Any]]:
    """Every object that can be read at one of the first `most` opening braces of `text`, outermost first."""
    position = -1
    for _ in range(most):
        position = text.find("{", position + 1)
        if position < 0:
            return
        try:
            found = first_value(text[position:])
        except UnreadableAnswer:
            continue
        if isinstance(found, dict) and found:
            yield found


def row(text: str, most: int = 32) -> list[dict[str, Any]]:
    """The objects that stand one behind the other from the first brace on, with nothing but marks between them."""
    found: list[dict[str, Any]] = []
    position = text.find("{")
    while position >= 0 and len(found) < most:
        read = _strict(text, position)
        if read is None or not isinstance(read[0], dict):
            break
        found.append(read[0])
        following = _NEXT.match(text, read[1])
        position = following.end() if following else -1
    return found


def _strict(text: str, position: int) -> tuple[Any, int] | None:
    """What the C reader of Python makes of it, many times faster; None where the lenient one has to look.

    Half a surrogate pair is refused: no file could hold it.
    """
    try:
        value, end = _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None
    # Few brackets cannot be deep.
    if text.count("{") + text.count("[") > MAX_DEPTH and not _is_shallow(value, MAX_DEPTH):
        return None
    if "\\u" in text and SURROGATES.search(json.dumps(value, ensure_ascii=False)):
        raise UnreadableAnswer(HALF)
    return value, end


def _is_shallow(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(item, levels - 1) for item in inner)


def _mended(text: str, at: int) -> tuple[str, int]:
    """The value that begins there as JSON has it, and where it ends: commas where they belong, names in double quotes,
    each bracket closed. Texts stay what they are. ValueError where there is more to it than that.
    """
    pieces, closers, key = list[str](), list[str](), -1
    while (token := _TOKEN.match(text, at)) is not None:
        opening, closing, mark, quoted, name, word = token.groups()
        at = token.end()
        if closing:
            pieces.append(closers.pop())
            key = -1
        elif mark == ":":
            pieces.append(":")
        elif mark == "," and pieces[-1:] == [":"]:
            raise ValueError("a comma where a value should be")
        elif not mark:
            after_colon = pieces[-1:] == [":"]
            if pieces and not after_colon and pieces[-1] not in ("{", "["):
                pieces.append(",")
            key = len(pieces) if not after_colon and closers[-1:] == ["}"] else -1
            if opening and key >= 0:
                raise ValueError(f"{opening!r} where a name should be")
            pieces.append(opening or (_text(quoted) if quoted else f'"{name}"' if name else _WORDS.get(word, word)))
            if opening:
                closers.append("}" if opening == "{" else "]")
        if not closers:
            return "".join(pieces), at
        if len(closers) > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
    if text[at:].strip():
        raise ValueError("a string has no end")
    if key >= 0:  # a name, and nothing that belongs to it
        del pieces[key - (pieces[key - 1] == ",") :]
    return "".join([*pieces, *reversed(closers)]), at


def _text(quoted: str) -> str:
    """In double quotes, with JSON's escapes. A backslash that JSON does not know stands for itself. UnreadableAnswer
    beside one that may do so too: who writes `\\d` does not mean a backspace by `\\b`.
    """
    escapes = set(_ESCAPE.findall(quoted))
    strange = sorted(escapes - _JSON_ESCAPES - {"'"})
    if strange and escapes & _TWO_READINGS:
        raise UnreadableAnswer(f"\\{strange[0]} is no escape of JSON: write \\\\ for each backslash")
    body = quoted[1:-1]
    if quoted[0] == "'":
        body = re.sub(r'(\\.)|"', lambda found: found[1] or '\\"', body, flags=re.DOTALL)
    return '"' + _ESCAPE.sub(_escaped, body) + '"'


def _escaped(found: re.Match[str]) -> str:
    if found[1] in _JSON_ESCAPES:
        return found[0]
    return "'" if found[1] == "'" else rf"\\{found[1]}"
