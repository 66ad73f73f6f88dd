"""Rules on the parts of a command: allowed, to be asked, refused. Data, read from TOML.

    default = "ask"                  # what no rule speaks of

    [[rule]]
    program = ["rm"]                 # without its path; "*" is all; write_file and edit_file are programs here
    flags = ["-r", "-R", "--recursive"]   # at least one of them, also inside -rf
    decision = "refuse"
    reason = "it deletes whole trees"
    instead = "delete files by name"

Other keys: `arguments` (the first words after the program: ["push"]), `without` (flags: the rule holds when none of
them is there), `writes` (patterns of files that output is sent to, or that a file action writes).
The strictest rule that holds decides: refuse before ask before allow. A word that only running can tell may be
anything: it never makes an allowing rule hold, and a refusing rule that it might make hold asks.
"""

import fnmatch
import tomllib
from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import Field

from stockade.approval.parts import Parsed, Part
from stockade.core.data import Data
from stockade.core.errors import UsageError

Decision = Literal["allow", "ask", "refuse"]
STRICTNESS: tuple[Decision, ...] = ("allow", "ask", "refuse")
SETS = ("careful", "microbots")


class Holds(IntEnum):
    """Whether a rule holds for a part."""

    NO = 0
    MAYBE = 1
    YES = 2


class Rule(Data):
    """One rule; a condition that is empty is not asked."""

    program: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    decision: Decision
    reason: str = ""
    instead: str = ""

    def holds(self, part: Part) -> Holds:
        return min(
            _program(self.program, part),
            _arguments(self.arguments, part),
            _flags(self.flags, part) if self.flags else Holds.YES,
            Holds(2 - _flags(self.without, part)) if self.without else Holds.YES,
            _writes(self.writes, part),
        )


class Judgement(Data):
    """What the rules say of one part."""

    decision: Decision
    text: str
    reason: str = ""
    instead: str = ""


class RuleSet(Data):
    """Rules and what holds where none does."""

    default: Decision = "ask"
    rule: tuple[Rule, ...] = Field(default=())

    def judge(self, parsed: Parsed) -> tuple[Judgement, ...]:
        """A judgement for each part, and one for what could not be read."""
        found = [self._judge_part(part) for part in parsed.parts]
        if parsed.problem is not None:
            found.append(Judgement(decision="ask", text="", reason=f"it cannot be judged: {parsed.problem}"))
        return tuple(found)

    def _judge_part(self, part: Part) -> Judgement:
        found = [judgement for rule in self.rule if (judgement := _of_rule(rule, part)) is not None]
        if part.words and part.words[0] is None:
            found.append(
                Judgement(decision="ask", text=part.text, reason="what it runs cannot be known before it runs")
            )
        elif part.words and not found:
            found.append(Judgement(decision=self.default, text=part.text, reason="no rule speaks of it"))
        return max(found, key=_strictness, default=Judgement(decision="allow", text=part.text))


def _of_rule(rule: Rule, part: Part) -> Judgement | None:
    held = rule.holds(part)
    if held is Holds.NO or (held is Holds.MAYBE and rule.decision == "allow"):
        return None
    if held is Holds.MAYBE:
        reason = f"it cannot be known before it runs whether {rule.reason}" if rule.reason else "it cannot be known"
        return Judgement(decision="ask", text=part.text, reason=reason, instead=rule.instead)
    return Judgement(decision=rule.decision, text=part.text, reason=rule.reason, instead=rule.instead)


def _strictness(judgement: Judgement) -> int:
    return STRICTNESS.index(judgement.decision)


def strictest(judgements: Iterable[Judgement]) -> Decision:
    """Of a whole command: what its strictest part gets."""
    return max((one.decision for one in judgements), key=STRICTNESS.index, default="allow")


@cache
def rule_set(name: str) -> RuleSet:
    """A set that comes with Stockade, one of `SETS`."""
    if name not in SETS:
        raise UsageError(f"there are no rules {name!r}", "the sets are " + ", ".join(SETS))
    text = resources.files(__package__).joinpath(f"{name}.toml").read_text()
    return RuleSet.model_validate(tomllib.loads(text))


def _program(wanted: tuple[str, ...], part: Part) -> Holds:
    if not wanted or "*" in wanted:
        return Holds.YES
    if not part.words:
        return Holds.NO
    if part.words[0] is None:
        return Holds.MAYBE
    return Holds.YES if part.program in wanted else Holds.NO


def _arguments(wanted: tuple[str, ...], part: Part) -> Holds:
    """The first words that are no flags; what stands behind an unknown word may be anything."""
    given = [word for word in part.words[1:] if word is None or not word.startswith("-")]
    for place, word in enumerate(wanted):
        if place >= len(given):
            return Holds.NO
        if given[place] is None:
            return Holds.MAYBE
        if given[place] != word:
            return Holds.NO
    return Holds.YES


def _flags(wanted: tuple[str, ...], part: Part) -> Holds:
    unknown = False
    for word in part.words[1:]:
        if word is None:
            unknown = True
        elif word == "--":
            break
        elif any(_is_flag(word, flag) for flag in wanted):
            return Holds.YES
    return Holds.MAYBE if unknown else Holds.NO


def _is_flag(word: str, flag: str) -> bool:
    """`-rf` holds -r; `--rec` may stand for --recursive, as getopt reads it; `-maxdepth` is itself only."""
    if word == flag or word.startswith(f"{flag}="):
        return True
    if flag.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 3 and word.startswith("--") and flag.startswith(name)
    return len(flag) == 2 and word.startswith("-") and not word.startswith("--") and flag[1] in word[1:]


def _writes(wanted: tuple[str, ...], part: Part) -> Holds:
    if not wanted:
        return Holds.YES
    if any(name is not None and fnmatch.fnmatch(name, pattern) for name in part.writes for pattern in wanted):
        return Holds.YES
    return Holds.MAYBE if None in part.writes else Holds.NO
