"""A command line taken apart: every program that it would start, wherever it stands.

Pipelines, lists, loops, functions, substitutions, here-documents; programs that are given to other programs (`sudo`,
`env`, `xargs`, `find -exec`); command lines in strings (`sh -c`, `eval`, `trap`). A word is what it will be after
quoting is taken away. What cannot be known before it runs is said to be unknown, never guessed: a rule can refuse it or
ask.

Parsing is by tree-sitter with its Bash grammar (MIT).
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import tree_sitter
import tree_sitter_bash

from stockade.approval.unwrap import Script, inner

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
            return _joined_word(node, source)
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


def _joined_word(node: "Node", source: bytes) -> str | None:
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


MAX_BYTES = 1_000_000
MAX_DEPTH = 8
"""Of command lines inside strings of command lines."""
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>"})
_NO_WORDS = frozenset({"variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect"})
_NO_ASCII = re.compile(rb"[\x80-\xff]")
"""The grammar's scanner asks the C library for the class of each character, which reads outside of its table for some
beyond ASCII, and so may end the process. To the shell they are parts of words like `%`; what they are is taken from the
command line itself.
"""
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


@dataclass(frozen=True, slots=True)
class Part:
    """One program with its arguments. `words[0]` is the program; None is a word that only running can tell.

    `text` is how it stands in the command line; `writes` are the files that its output is sent to, by name.
    """

    words: tuple[str | None, ...]
    text: str
    writes: tuple[str | None, ...] = ()

    @property
    def program(self) -> str | None:
        """Without its path: `/bin/rm` is rm."""
        return self.words[0].rpartition("/")[2] if self.words and self.words[0] else None


@dataclass(frozen=True, slots=True)
class Parsed:
    """All parts of a command line. `problem`: why the list may not be complete."""

    parts: tuple[Part, ...]
    problem: str | None = None


@cache
def _grammar() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_bash.language())


def parse(command: str, depth: int = 0) -> Parsed:
    """The parts of a Bash command line. Never raises: what cannot be read is a `problem`. `depth`: of how many command
    lines it is a word.
    """
    data = command.encode(errors="replace")
    if len(data) > MAX_BYTES:
        return Parsed((), f"it is longer than {MAX_BYTES} bytes")
    if depth > MAX_DEPTH:
        return Parsed((), f"it holds command lines in command lines, more than {MAX_DEPTH} deep")
    root = tree_sitter.Parser(_grammar()).parse(_NO_ASCII.sub(b"%", data)).root_node
    found: list[Part] = []
    problem = "it is not valid Bash" if root.has_error else None
    for node in _nodes(root):
        if node.type == "command":
            words = [literal(child, data) for child in node.named_children if child.type not in _NO_WORDS]
            part = Part(tuple(words), text_of(node, data), _targets(node, data))
        elif node.type == "redirected_statement" and (targets := _targets(node, data)):
            part = Part((), text_of(node, data), targets)
        elif node.type == "function_definition":
            part = _function(node, data)
        else:
            continue
        found.append(part)
        for below in _given_to(part, depth):
            found.extend(below.parts)
            problem = problem or below.problem
    return Parsed(tuple(found), problem)


def _nodes(root: "Node") -> Iterator["Node"]:
    """In the order of the text, without recursion: a hostile line may be nested a thousand deep."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.named_children))


def _function(node: "Node", source: bytes) -> Part:
    """A function may take the name of a program: `ls() { rm -rf x; }`. Its body is found by itself."""
    name = node.child_by_field_name("name")
    return Part(("function", text_of(name, source) if name else None), text_of(node, source))


def _targets(node: "Node", source: bytes) -> tuple[str | None, ...]:
    targets: list[str | None] = []
    for child in node.named_children:
        if child.type != "file_redirect" or not any(mark.type in _WRITES for mark in child.children):
            continue
        target = child.child_by_field_name("destination")
        name = literal(target, source) if target else None
        if name not in _HARMLESS_TARGETS:
            targets.append(name)
    return tuple(targets)


def _given_to(part: Part, depth: int) -> Iterator[Parsed]:
    """What a part starts by way of its arguments."""
    for given in inner(part.words):
        if isinstance(given, Script):
            if given.text is None:
                yield Parsed((Part((None,), part.text),))
            else:
                yield parse(given.text, depth + 1)
        elif depth >= MAX_DEPTH:
            yield Parsed((), f"it starts programs by programs, more than {MAX_DEPTH} deep")
        else:
            below = Part(given, part.text)
            yield Parsed((below,))
            yield from _given_to(below, depth + 1)
