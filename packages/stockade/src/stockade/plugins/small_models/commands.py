"""What a command line reads and writes, as far as that can be told without running it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_CHARS = 4000
"""Of a command: a longer one is a program, and not looked at."""
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n(?:.*?\n)??[ \t]*\2(?=\n|$)", re.DOTALL)
_OPERATORS = ";|&<>()\n"
_NOWHERE = ("/dev/", "/tmp/", "/proc/", "&")


@dataclass(slots=True)
class Program:
    """One program of a pipeline: its words, and the files behind its `<` and `>`. `appends`: those behind `>>`."""

    words: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    appends: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.words[0] if self.words else ""


def pipelines(command: str) -> list[list[Program]]:
    """The pipelines of `command` in their order, here-documents left out; none where its quotes have no partner."""
    if len(command) > MAX_CHARS:
        return []
    try:
        words = list(_words(_HEREDOC.sub(r"\3", command)))
    except ValueError:
        return []
    found: list[list[Program]] = [[Program()]]
    at, end = 0, len(words)
    while at < end:
        word, program = words[at], found[-1][-1]
        following = words[at + 1] if at + 1 < end else ""
        if word == "|":
            found[-1].append(Program())
        elif word in (">", ">|", "&>", ">>", "<"):
            at += 1
            errors = word in (">", ">>") and program.words[-1:] == ["2"]
            if errors:
                program.words.pop()
            elif not following.startswith(_NOWHERE):
                {"<": program.reads, ">>": program.appends}.get(word, program.writes).append(following)
        elif word in (">&", "<<<"):
            at += 1
        elif set(word) <= set(_OPERATORS):
            found.append([Program()])
        else:
            program.words.append(word)
        at += 1
    return [pipeline for pipeline in found if any(one.words or one.writes for one in pipeline)]


def _words(command: str) -> Iterator[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    return lexer
