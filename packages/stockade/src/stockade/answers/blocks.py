"""Fenced blocks, read as CommonMark does: a fence ends at the next bare one that is at least as long.

A block has a language, words behind it and lines, which are exact: none at all is the empty text, an empty one a line
break. A text with fences in it needs a longer fence
around it; one where that was forgotten is refused, not guessed at.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"^([ \t]*)(`{3,})[ \t]*([^`]*?)[ \t\r]*$")
# "shell: ```bash": small models keep words in front of an opening fence that has a language.
_OPENING = re.compile(r"^([ \t]*)(?:[^`]{0,80}[ \t:])?(`{3,})[ \t]*([A-Za-z][^`]*?)[ \t\r]*$")
_SHOWS_OUTPUT = re.compile(r"\b(?:outputs?|results?|prints?|contains?)\b[^\n]*:\s*$", re.IGNORECASE)
_ONE_LINE = re.compile(r"^[ \t]*(`{3,})([\w+-]+)[ \t]+(.+?)[ \t]*\1[ \t]*$")
# Tags without quotes only in capitals: `1 << n` is arithmetic.
_HERE = re.compile(r"(?<!<)<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Z_][A-Z0-9_]*)\b)")
_MOST_INDENTED = 3
"""Blanks before a fence that ends a block, more than before the one that began it."""


@dataclass(frozen=True, slots=True)
class Block:
    """`content` is its lines, each with its end; `start` is where it begins in the text; `complete` is False when the
    text ends in its middle. `torn`: a fence in it could as well begin another block.
    """

    language: str
    info: str
    content: str
    start: int
    complete: bool = True
    torn: bool = False

    @property
    def body(self) -> str:
        """The content without the end of its last line."""
        return self.content.removesuffix("\n")


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
            blocks.append(Block(single[2].lower(), "", f"{single[3]}\n", start))
            number += 1
            continue
        if not (opened := _FENCE.match(lines[number]) or _OPENING.match(lines[number])):
            number += 1
            continue
        language, _, info = opened[3].partition(" ")
        end, torn = _end(lines, number + 1, len(opened[2]), len(opened[1]))
        body = [_outdented(line, len(opened[1])) for line in lines[number + 1 : end]]
        complete = end < len(lines)
        if not complete and body and not body[-1]:
            body.pop()  # The text ends in a line break.
        if not complete and body and (last := body[-1].rstrip()).endswith("```"):
            body[-1], complete = last.rstrip("`"), True
        content = "".join(f"{line}\n" for line in body)
        blocks.append(Block(language.lower(), info.strip(), content, start, complete, torn))
        number = end + 1
    return blocks


def _outdented(line: str, columns: int) -> str:
    return line[columns:] if not line[:columns].strip() else line


def _end(lines: list[str], first: int, ticks: int, indented: int) -> tuple[int, bool]:
    """The line that ends the block, and whether a fence as long as its own, with a language, stands before that."""
    torn = False
    for number in range(first, len(lines)):
        fence = _FENCE.match(lines[number])
        if fence and len(fence[2]) >= ticks and len(fence[1]) <= indented + _MOST_INDENTED:
            if not fence[3]:
                return number, torn
            torn = True
    return len(lines), torn


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


def fenced(language: str, info: str, content: str) -> str:
    """A block that reads back as it was: its fence is longer than any in the content, which is whole lines."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`{3,}", content)), default=0))
    opening = f"{ticks}{language} {info}".rstrip()
    return f"{opening}\n{content}{ticks}"


def as_lines(text: str) -> str:
    """The content of a block whose body is `text`."""
    return f"{text}\n" if text else ""


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
