"""Fenced blocks as small models write them, and the way between a block and an action.

A block has a language, words behind it and a body. Inside a here-document, and between a fence with a language and its
end in the text of a file, a fence is text and ends nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"^([ \t]*)(`{3,})[ \t]*([^`]*?)[ \t]*$")
# "shell: ```bash": small models keep words in front of an opening fence that has a language.
_OPENING = re.compile(r"^([ \t]*)(?:[^`]{0,80}[ \t:])?(`{3,})[ \t]*([A-Za-z][^`]*?)[ \t]*$")
_SHOWS_OUTPUT = re.compile(r"\b(?:outputs?|results?|prints?|contains?)\b[^\n]*:\s*$", re.IGNORECASE)
_ONE_LINE = re.compile(r"^[ \t]*(`{3,})([\w+-]+)[ \t]+(.+?)[ \t]*\1[ \t]*$")
# Tags without quotes only in capitals: `1 << n` is arithmetic.
_HERE = re.compile(r"(?<!<)<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Z_][A-Z0-9_]*)\b)")
TEXT_BLOCKS = ("write_file", "edit_file", "finish", "ask_user", "sub_task")
"""Languages whose body is text in which fences may stand."""


@dataclass(frozen=True, slots=True)
class Block:
    """`start` is where it begins in the text; `complete` is False when the text ends in its middle."""

    language: str
    info: str
    body: str
    start: int
    complete: bool = True


def find_blocks(text: str, most: int = 32) -> list[Block]:
    """The first `most` blocks of `text`, in order."""
    lines = text.split("\n")
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    blocks: list[Block] = []
    number = 0
    while number < len(lines) and len(blocks) < most:
        start = offsets[number]
        if single := _ONE_LINE.match(lines[number]):
            blocks.append(Block(single[2].lower(), "", single[3], start))
            number += 1
            continue
        if not (opened := _FENCE.match(lines[number]) or _OPENING.match(lines[number])):
            number += 1
            continue
        language, _, info = opened[3].partition(" ")
        end, resume = _end(lines, number + 1, len(opened[2]), language.lower())
        body = [_outdented(line, len(opened[1])) for line in lines[number + 1 : end]]
        complete = end < len(lines)
        if not complete and body and (last := body[-1].rstrip()).endswith("```"):
            body[-1], complete = last.rstrip("`"), True
        blocks.append(Block(language.lower(), info.strip(), "\n".join(body), start, complete))
        number = resume
    return blocks


def _outdented(line: str, columns: int) -> str:
    return line[columns:] if not line[:columns].strip() else line


def _end(lines: list[str], first: int, ticks: int, language: str) -> tuple[int, int]:
    """The line after the last one of the body, and the line to go on at."""
    if language in TEXT_BLOCKS and (nested := _nested_end(lines, first, ticks)) is not None:
        return nested, nested + 1
    heredoc_until = -1
    for number in range(first, len(lines)):
        if number <= heredoc_until:
            continue
        fence = _FENCE.match(lines[number])
        if fence and len(fence[2]) >= ticks:
            # A fence with a language begins another block: the end of this one was forgotten.
            return (number, number) if fence[3] else (number, number + 1)
        if language not in TEXT_BLOCKS:
            heredoc_until = _here_document_end(lines, number)
    return len(lines), len(lines)


def _nested_end(lines: list[str], first: int, ticks: int) -> int | None:
    """The fence that ends a text in which every block is closed. None when they do not come out even."""
    depth = 0
    for number in range(first, len(lines)):
        fence = _FENCE.match(lines[number])
        if not fence or len(fence[2]) < ticks:
            continue
        if fence[3]:
            depth += 1
        elif depth:
            depth -= 1
        else:
            return number
    return None


def _here_document_end(lines: list[str], number: int) -> int:
    """The line that ends a here-document begun in line `number`; -1 when none begins there or it has no end."""
    found = _HERE.search(lines[number])
    if not found:
        return -1
    tag = found[2] or found[3] or found[4]
    for later in range(number + 1, len(lines)):
        if (lines[later].lstrip("\t") if found[1] else lines[later]) == tag:
            return later
    return -1


def cut_in_here_document(command: str) -> bool:
    """True when a here-document of `command` has no end: the shell would take the rest for granted."""
    lines = command.split("\n")
    number = 0
    while number < len(lines):
        if _HERE.search(lines[number]):
            if (end := _here_document_end(lines, number)) < 0:
                return True
            number = end
        number += 1
    return False


def fenced(language: str, info: str, body: str) -> str:
    """A block that reads back as it was: its fence is longer than any in the body."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`{3,}", body)), default=0))
    opening = f"{ticks}{language} {info}".rstrip()
    return f"{opening}\n{body}\n{ticks}" if body else f"{opening}\n{ticks}"


def without_prompts(command: str) -> str:
    """What was typed of a copied terminal: the lines behind `$ `, when the first one has it."""
    lines = command.split("\n")
    if not lines[0].startswith("$ "):
        return command
    return "\n".join(line[2:] for line in lines if line.startswith("$ "))


def here_document(program: str, code: str) -> str:
    """A command that feeds `code` to `program`."""
    tag = "END"
    while re.search(rf"^{tag}$", code, re.MULTILINE):
        tag += "_"
    return f"{program} <<'{tag}'\n{code}\n{tag}"


def is_output(text: str, block: Block) -> bool:
    """True for a block without a language behind words such as "The output is:"."""
    return not block.language and _SHOWS_OUTPUT.search(text[max(0, block.start - 200) : block.start]) is not None


def languages(blocks: Sequence[Block]) -> str:
    """For a message: what the blocks were in."""
    return ", ".join(sorted({block.language or "none" for block in blocks}))[:80]
