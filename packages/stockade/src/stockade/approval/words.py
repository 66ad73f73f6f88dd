"""A shell word as it will be after quoting is taken away, where that can be known before it runs."""

import codecs
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN = frozenset({"word", "number", "variable_name", "string_content", "test_operator"})
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_PATTERN = re.compile(r"(?<!\\)(?:[*?\[]|(?:^|[:=])~)")
_BRACE = re.compile(r"(?<!\\)\{")
_LIST = re.compile(r",|\.\.")


def literal(node: "Node", source: bytes) -> str | None:
    """The text of a word in `source`; None when only running the command can tell it: a variable, a pattern."""
    match node.type:
        case "raw_string":
            return text_of(node, source)[1:-1]
        case "ansi_c_string":
            return _ansi_c(text_of(node, source)[2:-1])
        case "string":
            return _quoted(node, source)
        case "concatenation" | "command_name":
            return _joined(node, source)
        case kind if kind in _PLAIN and not node.named_child_count:
            return _unquoted(text_of(node, source))
        case _:
            return None


def text_of(node: "Node", source: bytes) -> str:
    """What stands there in `source`, which is not what was given to the parser (parts.py)."""
    return source[node.start_byte : node.end_byte].decode(errors="replace")


def _is_changed_later(text: str) -> bool:
    """Whether the shell makes something else of it: a pattern, a tilde, a list in braces.

    By its parts between closing braces: one pattern for all would take time by the square of the length.
    """
    return _PATTERN.search(text) is not None or any(
        (found := _BRACE.search(part)) is not None and _LIST.search(part, found.end()) is not None
        for part in text.split("}")
    )


def _joined(node: "Node", source: bytes) -> str | None:
    if _is_changed_later("".join(text_of(child, source) for child in node.children if child.type == "word")):
        return None  # the grammar gives {a,b} in pieces
    found = [literal(child, source) for child in node.children]
    whole = [part for part in found if part is not None]
    return "".join(whole) if len(whole) == len(found) and found else None


def _unquoted(text: str) -> str | None:
    """Lists in braces, patterns and a leading tilde become something else; a word with one of them is not known."""
    if _is_changed_later(text):
        return None
    return _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], text)


def _quoted(node: "Node", source: bytes) -> str | None:
    """Between double quotes. White space at the edges belongs to no child, so the text is taken whole."""
    if any(child.type != "string_content" for child in node.named_children):
        return None
    return _IN_QUOTES.sub(lambda found: "" if found[1] == "\n" else found[1], text_of(node, source)[1:-1])


def _ansi_c(text: str) -> str | None:
    try:
        return codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")
    except (UnicodeDecodeError, ValueError):
        return None
