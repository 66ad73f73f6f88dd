"""What a rule says: words, and the command that it proposes. Apart, because the words may quote what others wrote."""

from typing import NamedTuple

from stockade.core.actions import RUN_THIS

INSTEAD = "\0"
"""Between the words of a rule and its command, in the one text that a rule gives back. Nothing that is quoted holds it:
neither a command line nor the name of a file can, and `quoted` sees to the rest.
"""


class Said(NamedTuple):
    """`command` is empty where the rule proposes none."""

    words: str
    command: str = ""

    @classmethod
    def of(cls, text: str) -> "Said":
        words, _, command = text.partition(INSTEAD)
        return cls(words, command)

    @property
    def spoken(self) -> str:
        """For the bot: the command comes last, so that it is copied whole."""
        return f"{self.words}{RUN_THIS}{self.command}" if self.command else self.words


def quoted(text: str) -> str:
    """What a bot, a file or a tool wrote, as words can hold it."""
    return text.replace(INSTEAD, "")
