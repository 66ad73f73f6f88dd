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
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_TWO_READINGS = frozenset("bfnrt")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_SPACE = " \t\r\n"
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
    reader = _Reader(text, position)
    try:
        return reader.value(0), reader.at
    except (ValueError, IndexError) as error:
        raise UnreadableAnswer(f"the JSON of the answer cannot be read: {str(error)[:160]}") from None


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


def _one_reading(escapes: set[str]) -> None:
    """A backslash that JSON does not know stands for itself. UnreadableAnswer beside one that may do so too: who writes
    `\\d` does not mean a backspace by `\\b`.
    """
    strange = sorted(escapes - _ESCAPES.keys() - {"u"})
    if strange and escapes & _TWO_READINGS:
        raise UnreadableAnswer(f"\\{strange[0]} is no escape of JSON: write \\\\ for each backslash")


class _Reader:
    """A recursive reader over `text` from `at`."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        mark = self._peek()
        if mark == "{":
            return self._object(depth)
        if mark == "[":
            return self._list(depth)
        if mark in ('"', "'"):
            return self._string()
        return self._word()

    def _peek(self) -> str:
        """The next character that is not space; "" at the end."""
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1
        return self.text[self.at : self.at + 1]

    def _object(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        self.at += 1
        while (mark := self._peek()) not in ("}", ""):
            if mark == ",":
                self.at += 1
                continue
            if mark == "]":
                break
            key = self._string() if mark in ('"', "'") else self._bare_key()
            if self._peek() == "":
                break
            if self._peek() != ":":
                raise ValueError(f"':' is missing after {key!r}")
            self.at += 1
            if self._peek() == "":
                break
            value = self.value(depth + 1)
            _once(result, key, value)
            result[key] = value
        self.at += 1
        return result

    def _list(self, depth: int) -> list[Any]:
        result: list[Any] = []
        self.at += 1
        while (mark := self._peek()) not in ("]", ""):
            if mark == ",":
                self.at += 1
                continue
            if mark == "}":
                break
            result.append(self.value(depth + 1))
        self.at += 1
        return result

    def _bare_key(self) -> str:
        start = self.at
        while self.at < len(self.text) and (self.text[self.at].isalnum() or self.text[self.at] in "_-"):
            self.at += 1
        if self.at == start:
            raise ValueError(f"{self.text[start]!r} where a name should be")
        return self.text[start : self.at]

    def _string(self) -> str:
        quote = self.text[self.at]
        self.at += 1
        parts: list[str] = []
        escapes: set[str] = set()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == quote:
                self.at += 1
                _one_reading(escapes)
                return "".join(parts)
            if char == "\\" and self.at + 1 < len(self.text):
                escapes.add(self.text[self.at + 1])
                parts.append(self._escape())
            else:
                parts.append(char)
                self.at += 1
        raise ValueError("a string has no end")

    def _escape(self) -> str:
        char = self.text[self.at + 1]
        if char == "u":
            code = self._unit()
            if 0xD800 <= code < 0xDC00 and self.text[self.at : self.at + 2] == "\\u":
                low = self._unit()
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) if 0xDC00 <= low < 0xE000 else code
            if 0xD800 <= code < 0xE000:
                raise UnreadableAnswer(HALF)
            return chr(code)
        self.at += 2
        return _ESCAPES.get(char, "\\" + char)

    def _unit(self) -> int:
        """Of `\\uXXXX` at the reader's place."""
        digits = self.text[self.at + 2 : self.at + 6]
        self.at += 6
        if len(digits) < 4 or not digits.isalnum():
            raise ValueError(f"'\\u{digits}' is no character")
        return int(digits, 16)

    def _word(self) -> Any:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in ",}]:" + _SPACE:
            self.at += 1
        word = self.text[start : self.at]
        if word in _WORDS:
            return _WORDS[word]
        try:
            return int(word)
        except ValueError:
            return _finite(word)
