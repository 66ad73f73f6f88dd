"""What the words of a task say, as far as the rules need it: the only place in Stockade that reads English.

In doubt it says nothing: a rule that is wrong once does more harm than one that is missing.
"""

import re
from dataclasses import dataclass
from functools import cached_property

MAX_CHARS = 4000
_FILE = re.compile(r"(?<![\w./:@*-])\w[\w/-]*(?:\.\w+)*\.(?!com\b|org\b|net\b|io\b)[a-z]\w{1,4}\b(?![\w/*(])")
_FOLDER = re.compile(r"\bnew (?:folder|directory)(?: named| called)? ['\"]?(?P<name>\w[\w/-]*)", re.IGNORECASE)
_ASKS = re.compile(
    r"\?(?:\s|$)|^(?:what|which|who|how|why|when|where|count|list|find|tell|say|show|explain|describe|summari[sz]e|report"
    r"|is|are|does|do|calculate|compute|determine)\b"
    r"|\b(?:(?:say|know|find out|calculate|determine) (?:what|which|who|how|why|when|where|whether|if))\b",
    re.IGNORECASE,
)
_TELLS = re.compile(r"\b(?:answer with|finish with|tell (?:me|us)|let me know)\b", re.IGNORECASE)
_INTO_FILE = re.compile(
    r"\b(?:write|save|put|store|add|append|copy)\b[^.?!\n]{0,80}\b(?:in|into|to|as)\b", re.IGNORECASE
)
_BARE = re.compile(
    r"\b(?:only|just|nothing but|bare)\b(?: with)?(?: the| a| its)?"
    r" (?:answer|number|integer|value|name|count|result|string|digit)",
    re.IGNORECASE,
)
_EMPTIES = re.compile(r"\b(?:empt(?:y|ied)|clear(?:ed)?|truncated?|wiped?|zero bytes)\b", re.IGNORECASE)
_REMOVES = re.compile(r"\b(?:delet|remov|renam|mov|drop|replac|clean|tidy|merg|combin|only|archiv)", re.IGNORECASE)
_HOLLOW = re.compile(
    r"(?:the|this|your|my|all|it|i|have|has|been|is|are|was|were|now|and|there|no|more|to|with|fully|successfully|tasks?"
    r"|done|jobs?|work|question|request|shell|session|files?|steps?|read|answer(?:ed)?|process(?:ed)?|completed?|output"
    r"|result|commands?|correct(?:ly)?|succeeded|further|needed|actions?|as|so|finish(?:ed)?|end(?:ed)?|exit|printed"
    r"|nothing|executed|run|been|created|written|saved|updated|added)"
)
"""Words that say no more than that something is done."""
_ENDS = re.compile(
    r"\b(?:done|complete|completed|finish|finished|succeeded|executed|processed|nothing)\b", re.IGNORECASE
)
_MOST_WORDS = 40
_OCCURRENCES = re.compile(r"\boccurrences?\b|\bhow (?:often|many times)\b|\bnumber of times\b", re.IGNORECASE)
_LINES = re.compile(r"\b(?:lines?|rows?) (?:that|which|with|containing|contain|where)\b", re.IGNORECASE)
_TOTAL = re.compile(r"\b(?:total|altogether|sum|overall|combined|in all|added together)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\b(?:number of|how many|count of)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Task:
    """`text` is what the user wrote; only its beginning is looked at."""

    text: str

    @cached_property
    def words(self) -> str:
        return self.text[:MAX_CHARS].strip()

    @cached_property
    def files(self) -> list[str]:
        """The files that it names, and the new folders."""
        folders = [found["name"] for found in _FOLDER.finditer(self.words)]
        return list(dict.fromkeys([*_FILE.findall(self.words), *folders]))

    @cached_property
    def asks(self) -> bool:
        """It wants an answer for the user; one that goes into a file is none."""
        if _TELLS.search(self.words):
            return True
        return _ASKS.search(self.words) is not None and not _INTO_FILE.search(self.words)

    @cached_property
    def bare(self) -> bool:
        return self.asks and _BARE.search(self.words) is not None

    @cached_property
    def empties(self) -> bool:
        """A file that holds nothing may be what is wanted."""
        return _EMPTIES.search(self.words) is not None

    @cached_property
    def removes(self) -> bool:
        return _REMOVES.search(self.words) is not None

    @cached_property
    def occurrences(self) -> bool:
        """It wants to know how often something is there, not on how many lines."""
        return _OCCURRENCES.search(self.words) is not None and not _LINES.search(self.words)

    @cached_property
    def total(self) -> bool:
        """It wants one number for all, for the user."""
        return self.asks and _TOTAL.search(self.words) is not None

    @cached_property
    def number(self) -> bool:
        """It wants a number, and says of what."""
        return _NUMBER.search(self.words) is not None

    def hollow(self, answer: str) -> bool:
        """Whether an answer says no more than that something is done."""
        names = {name.rpartition("/")[2].lower() for name in self.files}
        words = [word.strip(".,!:;'\"`()") for word in answer.lower().split()]
        words = [word for word in words if word and word.rpartition("/")[2] not in names]
        empty = len(words) <= _MOST_WORDS and all(map(_HOLLOW.fullmatch, words))
        return not words or (empty and _ENDS.search(answer) is not None)
