"""A command line as far as it can be read without running it.

A line is plain when its tree consists of commands of literal or plainly quoted words, joined by `|`, `&&`, `||`, `;`
and line ends, with no redirection but to /dev/null; a `$NAME` or a pattern is an argument of which only the beginning
is known. All else is not judged but asked about: what a substitution, an assignment or a brace becomes is for Bash.

Parsing is by tree-sitter with its Bash grammar (MIT). It is not Bash, so no more than its structure is believed: each
leaf must look like what the grammar took it for, and between two leaves there is nothing but blanks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import tree_sitter
import tree_sitter_bash

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_BYTES = 20_000  # the grammar takes up to the square of it: 0.8 s here
_NO_ASCII = re.compile(rb"[\x80-\xff]")
"""The grammar's scanner asks the C library for the class of each character, which reads outside of its table for some
beyond ASCII, and so may end the process. To the shell they are parts of words like `%`; what they are is taken from the
command line itself.
"""
_BARE = re.compile(r"(?:[\w./:=@%+,^!*?\[\]~-]|[^\x00-\x7f]|\\[ !-/:-@\[-`{-~])+")
_HOME = re.compile(r"[:=]~")
_PATTERN = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_QUOTED = re.compile(r'"(?:[^"\\$`]|\\[^\n]|\$(?:[A-Za-z_][A-Za-z0-9_]*|\?|(?=[\s"\\|)/.,:;%\]}^+~=&<>])))*"')
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\?)")
_USED = re.compile(r"(?<!\\)(?:\\\\)*\$[A-Za-z_?]")
_ESCAPED, _IN_QUOTES = re.compile(r"\\(.)"), re.compile(r'\\([$`"\\])')
_NOWHERE = re.compile(r"(?:[12]?|&)>>?[ \t]*/dev/null|[12]?>&[12]|<[ \t]*/dev/null")
_JOINTS = frozenset({";", "\n", "&&", "||", "|", "|&"})
_OUTER = frozenset({"program", "list", "pipeline", "redirected_statement"})


@dataclass(frozen=True, slots=True)
class Word:
    """`text` None: only running tells. `start`: how it begins at any rate. A `pattern` may be several words, each with
    this start; a `split` variable is any number of words, of which nothing is known.
    """

    text: str | None
    start: str
    kind: Literal["one", "pattern", "split"] = "one"


@dataclass(frozen=True, slots=True)
class Command:
    """The program and its arguments, and how the command stands in the line."""

    words: tuple[Word, ...]
    text: str


class NotPlainError(Exception):
    """For the user: what in the line only Bash can tell."""


@cache
def _grammar() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_bash.language())


def read(line: str) -> tuple[Command, ...]:
    """The commands of a plain line, none of an empty one. Raises NotPlainError."""
    data = line.encode(errors="replace")
    if len(data) > MAX_BYTES:
        raise NotPlainError(f"it is longer than {MAX_BYTES} bytes")
    if strange := next((one for one in line if not one.isprintable() and one not in "\n\t"), None):
        raise NotPlainError(f"it holds the character {strange!r}")
    root = _tree(data)
    if root.has_error:
        raise NotPlainError("it is not valid Bash")
    return tuple(_commands(root, data))


def leaves_names(line: str) -> bool:
    """Whether after this line, whatever it does elsewhere, the shell still means the same by every program's name: it
    defines no function or alias, and sets no variable but in small letters.
    """
    data = line.encode(errors="replace")
    if len(data) > MAX_BYTES:
        return False
    root = _tree(data)
    return not root.has_error and all(_leaves(node, data) for node in _nodes(root))


def _tree(data: bytes) -> "Node":
    return tree_sitter.Parser(_grammar()).parse(_NO_ASCII.sub(b"%", data)).root_node


def _nodes(root: "Node") -> Iterator["Node"]:
    """In the order of the text, without recursion: a hostile line may be nested a thousand deep."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.named_children))


def _text(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode(errors="replace")


def _commands(root: "Node", data: bytes) -> Iterator[Command]:
    """Also held: what stands between the leaves."""
    at, apart = 0, True
    waiting = [root]
    while waiting:
        node = waiting.pop()
        text = _text(data, node.start_byte, node.end_byte)
        if node.type in _OUTER:
            waiting.extend(reversed(node.children))
            continue
        gap = _text(data, at, node.start_byte)
        if gap.strip(" \t\n"):
            raise NotPlainError(f"{gap.strip()!r} is no plain word")
        at, apart = node.end_byte, apart or "\n" in gap
        if node.type in _JOINTS:
            apart = True
        elif node.type == "comment":
            if "\n" in text or not (gap or node.start_byte == 0):
                raise NotPlainError(f"{text!r} is no plain word")
        elif node.type == "file_redirect":
            if _NOWHERE.fullmatch(text) is None or not gap or apart:
                raise NotPlainError(f"{text!r} redirects, and not to /dev/null")
        elif node.type == "command" and apart:
            yield Command(tuple(_words(node, data)), text)
            apart = False
        else:
            raise NotPlainError(f"{text!r} is no plain command")
    if rest := _text(data, at, len(data)).strip(" \t\n"):
        raise NotPlainError(f"{rest!r} is no plain word")


def _words(command: "Node", data: bytes) -> Iterator[Word]:
    at = command.start_byte
    for place, node in enumerate(command.children):
        text, gap = _text(data, node.start_byte, node.end_byte), _text(data, at, node.start_byte)
        if gap.strip(" \t") or bool(gap) is (place == 0):
            raise NotPlainError(f"{text!r} is no plain word")
        at = node.end_byte
        if node.type != "file_redirect":
            yield _word(node, data)
        elif _NOWHERE.fullmatch(text) is None:
            raise NotPlainError(f"{text!r} redirects, and not to /dev/null")


def _word(node: "Node", data: bytes) -> Word:
    """Of its pieces, which stand side by side."""
    pieces, at, whole = [node], node.start_byte, Word("", "")
    while pieces:
        piece = pieces.pop()
        if piece.type in ("command_name", "concatenation"):
            pieces.extend(reversed(piece.children))
            continue
        found, first = None, at == node.start_byte
        if piece.start_byte == at:
            found = _piece(piece, _text(data, piece.start_byte, piece.end_byte), first)
        if found is None:
            break
        at, whole = piece.end_byte, _joined(whole, found)
    if at != node.end_byte or pieces:
        raise NotPlainError(f"{_text(data, node.start_byte, node.end_byte)!r} is no plain word")
    return whole


def _joined(left: Word, right: Word) -> Word:
    if "split" in (left.kind, right.kind):
        return Word(None, "", "split")
    kind: Literal["one", "pattern"] = "pattern" if "pattern" in (left.kind, right.kind) else "one"
    if left.text is None:
        return Word(None, left.start, kind)
    return Word(None if right.text is None else left.text + right.text, left.text + right.start, kind)


def _piece(node: "Node", text: str, first: bool) -> Word | None:
    match node.type:
        case "raw_string" if "'" not in text[1:-1] and len(text) > 1 and text[0] == text[-1] == "'":
            return Word(text[1:-1], text[1:-1])
        case "string" if _QUOTED.fullmatch(text) is not None:
            return _in_quotes(text[1:-1])
        case "simple_expansion" if _VARIABLE.fullmatch(text) is not None:
            return Word(None, "0") if text == "$?" else Word(None, "", "split")
        case "word" | "number" if not node.named_child_count and _BARE.fullmatch(text) is not None:
            return _bare(text, first)
        case _:
            return None


def _in_quotes(text: str) -> Word:
    found = _USED.search(text)
    known = _IN_QUOTES.sub(r"\1", text[: found.end() - 2] if found else text)
    return Word(None if found else known, known)


def _bare(text: str, first: bool) -> Word | None:
    if text.startswith("~") and first:
        return Word(None, "/") if text[1:2] in ("", "/") else None
    if _HOME.search(text):
        return None
    if found := _PATTERN.search(text):
        return Word(None, _ESCAPED.sub(r"\1", text[: found.end() - 1]), "pattern")
    plain = _ESCAPED.sub(r"\1", text)
    return Word(plain, plain)


_BUILTINS = """. alias bind builtin command complete coproc declare enable eval exec export fc getopts hash let local
mapfile printf read readarray readonly set shopt source test trap typeset unalias unset wait"""
"""Those that can give names another meaning, or set a variable."""
_KINDS = """program list pipeline command command_name word number string raw_string string_content ansi_c_string
concatenation simple_expansion variable_name special_variable_name command_substitution process_substitution subshell
comment redirected_statement file_redirect file_descriptor heredoc_redirect heredoc_start heredoc_body heredoc_content
heredoc_end herestring_redirect compound_statement if_statement elif_clause else_clause while_statement do_group
for_statement case_statement case_item negated_command test_command unary_expression binary_expression
parenthesized_expression test_operator regex extglob_pattern variable_assignment expansion"""
"""Of the nodes in a line that leaves the names as they are."""
_CHANGING, _LEAVING = frozenset(_BUILTINS.split()), frozenset(_KINDS.split())
_SMALL = re.compile(r"[a-z_][a-z0-9_]*")


def _leaves(node: "Node", data: bytes) -> bool:
    if node.type not in _LEAVING:
        return False
    text = _text(data, node.start_byte, node.end_byte)
    match node.type:
        case "command_name":
            try:
                return (_word(node, data).text or ".") not in _CHANGING
            except NotPlainError:
                return False
        case "variable_assignment" if node.parent is not None and node.parent.type == "command":
            return node.parent.child_by_field_name("name") is not None  # for that program only
        case "variable_assignment" | "for_statement":
            name = node.child_by_field_name("name") or node.child_by_field_name("variable")
            return name is not None and _SMALL.fullmatch(_text(data, name.start_byte, name.end_byte)) is not None
        case "expansion":
            return re.fullmatch(r"\$\{\w+\}", text) is not None
        case "compound_statement" | "test_command" | "word" | "concatenation":
            return re.match(r"\(\(|\[\[|\[ *-v|\{\w+\}$", text) is None
        case _:
            return True
