"""What `--approve rules` allows, refuses or asks about. Data, read from TOML: commands.toml says what its keys are.

A command is allowed when the table has it and calls each of its options harmless; what the table does not know is asked
about. A file of one's own has the same commands, which go before the built-in ones of the same name, and

    [[deny]]
    name = "git+push"             # two words are joined by +, several names stand between blanks
    options = "-f --force"        # one of them must be there, also inside -uf; without this key: always
    operand = '.*\\.lock'          # a word that looks so must be there
    reason = "it rewrites what others have"
    instead = "push to a branch of your own"

A refusal holds for plain commands; whatever hides one (`sh -c`, a substitution) is asked about and seen. The bot's own
tools are commands of their names behind `@`: `@write_file` with the path as its operand.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import resources
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from stockade.approval.line import Command, Word
from stockade.core.data import Data, first_refused
from stockade.core.errors import UsageError

Decision = Literal["allow", "ask", "refuse"]
_NUMBER = re.compile(r"-[0-9]+[A-Za-z]?")
_OPTION = re.compile(r"(?:-NUM|-[A-Za-z0-9.]|--?[A-Za-z0-9][A-Za-z0-9-]*)[=?]?")


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


def _options(text: str) -> str:
    if wrong := next((one for one in text.split() if text != "*" and not _OPTION.fullmatch(one)), None):
        raise ValueError(f"{wrong!r} is no option")
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]
Options = Annotated[str, AfterValidator(_options)]
Names = Annotated[str, Field(min_length=1)]


class Allowed(Data):
    """A command of the table; the keys are explained in commands.toml."""

    name: Names
    options: Options = ""
    operands: int | None = Field(default=None, ge=0)
    operand: Pattern = ""
    first: Pattern = ""
    needs: Options = ""
    exact: bool = False
    stops: bool = False
    why: str = ""

    def objection(self, words: Sequence[Word]) -> str | None:
        """Why these arguments are not harmless; None where they are."""
        if self.options == "*":
            return None
        try:
            given = tuple(self._given(words))
        except ValueError as error:
            return str(error)
        operands = [one for one in given if isinstance(one, Word)]
        if self.operands is not None and (len(operands) > self.operands or any(one.kind != "one" for one in operands)):
            return f"harmless is at most {self.operands} operand{'s' * (self.operands != 1)}"
        for pattern, bound in ((self.operand, operands), (self.first, operands[:1])):
            for one in bound if pattern else ():
                if one.text is None or re.fullmatch(pattern, one.text) is None:
                    return f"{one.start!r} is none of the operands that are harmless"
        if self.needs and not set(self.needs.split()) & set(given):
            return f"it is harmless with {' or '.join(self.needs.split())} only"
        return None

    @cached_property
    def _known(self) -> dict[str, str]:
        return {one.rstrip("=?"): one[len(one.rstrip("=?")) :] for one in self.options.split()}

    def _given(self, words: Sequence[Word]) -> Iterator[str | Word]:
        """The names of the options, and the operands. ValueError where one may be an option that is not harmless."""
        waiting, ended = list(reversed(words)), False
        while waiting:
            word = waiting.pop()
            if not ended and word.text is None and word.start in ("", "-"):
                raise ValueError("what is not known before it runs may be an option")
            if ended or not word.start.startswith("-") or word.text == "-":
                yield word
                ended = ended or self.stops
            elif word.text == "--":
                ended = True
            else:
                yield from self._names(word, waiting)

    def _names(self, word: Word, waiting: list[Word]) -> Iterator[str]:
        """Of a word that is an option, or several; its value is taken from those that are waiting."""
        text = word.text
        if text is not None and text in self._known:
            yield text
            if self._known[text] == "=" and waiting:
                _check_value(waiting.pop())
            return
        name, equals, _ = word.start.partition("=")
        if equals and name.startswith("--") and not self.exact and self._known.get(name):
            yield name
            return
        if text is None or text.startswith("--") or self.exact:
            raise ValueError(f"the table does not call {name} harmless")
        if "-NUM" in self._known and _NUMBER.fullmatch(text):
            yield "-NUM"
            return
        for place, letter in enumerate(text[1:], 2):
            if (takes := self._known.get(f"-{letter}")) is None:
                raise ValueError(f"the table does not call -{letter} harmless")
            yield f"-{letter}"
            if takes:
                if takes == "=" and place == len(text) and waiting:
                    _check_value(waiting.pop())
                return


def _check_value(word: Word) -> None:
    if word.kind != "one" or ((word.text or "").startswith("-") and _NUMBER.fullmatch(word.text or "") is None):
        raise ValueError("what should be the value of an option may be an option")


class Denied(Data):
    """What is never done."""

    name: Names
    options: Options = ""
    operand: Pattern = ""
    reason: str = "a rule says no"
    instead: str = ""

    def holds(self, words: Sequence[Word]) -> bool | None:
        """None: only running tells."""
        wanted = self.options.split()
        results: list[bool | None] = []
        if wanted:
            results.append(_some(words, lambda text: any(_is_option(text, one) for one in wanted)))
        if self.operand:
            results.append(_some(words, lambda text: re.fullmatch(self.operand, text) is not None))
        return False if False in results else None if None in results else True


def _some(words: Sequence[Word], holds: Callable[[str], bool]) -> bool | None:
    if any(word.text is not None and holds(word.text) for word in words):
        return True
    return None if any(word.text is None for word in words) else False


def _is_option(word: str, option: str) -> bool:
    """`-rf` holds -r; `--rec` may stand for --recursive, as getopt reads it."""
    name = word.partition("=")[0]
    if name == option or (option.startswith("--") and len(name) > 3 and option.startswith(name)):
        return True
    return len(option) == 2 and word[:1] == "-" and word[:2] != "--" and option[1] in word


class Judgement(Data):
    """What the rules say of one command, or of a line that is not plain."""

    decision: Decision
    text: str
    reason: str = ""
    instead: str = ""


class RuleSet(Data):
    """A table and what is never done. Without either all is asked about."""

    command: tuple[Allowed, ...] = ()
    deny: tuple[Denied, ...] = ()

    @cached_property
    def _commands(self) -> dict[str, Allowed]:
        return {name: one for one in self.command for name in _names(one.name)}

    def judge(self, command: Command) -> Judgement:
        """The longest name decides; a refusal goes before what is allowed."""
        names = tuple(_called(command.words))
        for rule in self.deny:
            for name in set(names).intersection(_names(rule.name)):
                if (held := rule.holds(command.words[_length(name) :])) is not False:
                    said: Decision = "refuse" if held else "ask"
                    return Judgement(decision=said, text=command.text, reason=rule.reason, instead=rule.instead)
        for name in reversed(names):
            if (entry := self._commands.get(name)) is not None:
                reason = entry.objection(command.words[_length(name) :])
                return Judgement(decision="ask" if reason else "allow", text=command.text, reason=reason or "")
        return Judgement(decision="ask", text=command.text, reason="it is not in the table of what is harmless")


def _names(names: str) -> list[str]:
    """`ls git+log` is two."""
    return [name.replace("+", " ") if name[-1] != "+" else name for name in names.split()]


def _length(name: str) -> int:
    return name.count(" ") + 1


def _called(words: Sequence[Word]) -> Iterator[str]:
    """`git`, `git log`, `git log x`: what the entry may be called, as far as it is known."""
    name = ""
    for word in words[:3]:
        if not word.text or " " in word.text:
            return
        name = f"{name} {word.text}".strip()
        yield name


@cache
def built_in() -> RuleSet:
    """The table that comes with Stockade."""
    return RuleSet.model_validate(tomllib.loads(resources.files(__package__).joinpath("commands.toml").read_text()))


def with_own(table: Mapping[str, object], path: str) -> RuleSet:
    """The built-in table and a user's file, which is at `path`. UsageError names what is wrong in it."""
    try:
        own = RuleSet.model_validate(table)
    except ValidationError as error:
        key, message = first_refused(error, RuleSet)
        raise UsageError(f"{path}: {key}{message}", "docs/approval.md shows its form") from None
    return RuleSet(command=(*built_in().command, *own.command), deny=own.deny)
