"""What the words of a task say, as far as the rules need it: the only place in Stockade that reads English.

In doubt it says nothing: a rule that is wrong once does more harm than one that is missing.
"""

import re
from dataclasses import dataclass

MAX_CHARS = 4000
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
_OCCURRENCES = re.compile(r"\boccurrences?\b|\bhow (?:often|many times)\b|\bnumber of times\b", re.IGNORECASE)
_LINES = re.compile(r"\b(?:lines?|rows?) (?:that|which|with|containing|contain|where)\b", re.IGNORECASE)
_TOTAL = re.compile(r"\b(?:total|altogether|sum|overall|combined|in all|added together)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\b(?:number of|how many|count of)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Task:
    """`text` is what the user wrote; only its beginning is looked at."""

    text: str

    @property
    def words(self) -> str:
        return self.text[:MAX_CHARS].strip()

    @property
    def asks(self) -> bool:
        """It wants an answer for the user; one that goes into a file is none."""
        if _TELLS.search(self.words):
            return True
        return _ASKS.search(self.words) is not None and not _INTO_FILE.search(self.words)

    @property
    def occurrences(self) -> bool:
        """It wants to know how often something is there, not on how many lines."""
        return _OCCURRENCES.search(self.words) is not None and not _LINES.search(self.words)

    @property
    def total(self) -> bool:
        """It wants one number for all, for the user."""
        return self.asks and _TOTAL.search(self.words) is not None

    @property
    def number(self) -> bool:
        """It wants a number, and says of what."""
        return _NUMBER.search(self.words) is not None
