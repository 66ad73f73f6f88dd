"""Command lines that count something else beside what was meant: names and totals.

Each rule is a fact about programs of a shell, whatever the task; where two readings are right, the task's words decide.
A rule gets the stages of one pipeline and answers with a fact and the stages that do what was meant. What is proposed
has neither double quotes nor backslashes where that can be: in a JSON answer a small model loses its way at them.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stockade.plugins.small_models.commands import Program, pipelines
from stockade.plugins.small_models.task import Task

MOST_FACTS = 3
_CD = re.compile(r"(?:cd\s+[^\s;&|]+\s*(?:&&|;)\s*)?")
_STAGE = re.compile(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^|'\"\\])+", re.DOTALL)
_ESCAPED = re.compile(r"\\[;()+]")
_PLAIN_SUM = re.compile(r"\s*awk\s+'\s*\{\s*(\w+)\s*\+=\s*\$1;?\s*\}\s*END\s*\{\s*print\s+\1\s*;?\}\s*'\s*")
_GLOB = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class Stage:
    """One program of a pipeline and its text."""

    text: str
    program: Program

    @property
    def inner(self) -> list[str]:
        """The words of what is run: behind -exec or xargs, where they are."""
        words = self.program.words
        for place, word in enumerate(words):
            if word in ("-exec", "xargs") and place + 1 < len(words):
                return [one for one in words[place + 1 :] if not (word == "xargs" and one in ("-0", "-r", "-d", "\\n"))]
        return words

    @property
    def letters(self) -> str:
        """Its short options."""
        return "".join(word[1:] for word in self.inner[1:] if re.fullmatch(r"-[A-Za-z]+", word))

    @property
    def name(self) -> str:
        return self.inner[0] if self.inner else ""

    @property
    def several(self) -> bool:
        """Whether it reads more than one file, so that it says of each which it is."""
        files = [word for word in self.inner[1:] if not word.startswith("-")][1 if self.name == "grep" else 0 :]
        if "-exec" in self.program.words:
            return self.inner[-1:] == ["+"]
        many = "xargs" in self.program.words or len(files) > 1 or any(map(_GLOB.search, files))
        return many or (self.name == "grep" and bool(set("rR") & set(self.letters)))


Found = tuple[str, list[str]]
Rule = Callable[[Task, Sequence[Stage]], Found | None]


def _texts(stages: Sequence[Stage]) -> list[str]:
    return [one.text for one in stages]


def _grep(text: str, add: str = "", drop: str = "") -> str:
    """`text` with other short options behind its grep."""
    head, found, rest = text.partition("grep")
    for letter in drop:
        rest = re.sub(
            rf"\s-(\w*?){letter}(\w*)(?=\s)", lambda m: f" -{m[1]}{m[2]}" if m[1] + m[2] else "", rest, count=1
        )
    return f"{head}{found}{f' -{add}' if add else ''}{rest}"


def ended(task: Task, stages: Sequence[Stage]) -> Found | None:
    first = stages[0]
    if first.program.name != "find" or "-exec" not in first.program.words or set("@+") & set(first.program.words):
        return None
    text = re.sub(r"[\s\\;]+$", "", first.text)
    return "-exec has to end with a plus sign.", [f"{text} + ", *_texts(stages[1:])]


def total(task: Task, stages: Sequence[Stage]) -> Found | None:
    *before, last = stages
    if not before or (one := before[-1]).name != "wc" or not one.several or not _PLAIN_SUM.fullmatch(last.text):
        return None
    text = re.sub(r"\bwc((?:\s+-\w+)*)", "cat", one.text, count=1)
    options = re.search(r"\bwc((?:\s+-\w+)*)", one.text)
    counted = options[1].strip() if options else ""
    return (
        "With several files wc writes a line with their total too, and awk adds that to the rest.",
        [*_texts(before[:-1]), f"{text.rstrip()} ", f" wc {counted}"],
    )


def each(task: Task, stages: Sequence[Stage]) -> Found | None:
    *before, last = stages
    if not task.total or not last.several or last.name not in ("wc", "grep"):
        return None
    fact = "That prints a number for each file, and the task wants one for all."
    if last.name == "wc":
        options = re.search(r"\bwc((?:\s+-\w+)+)", last.text)
        text = re.sub(r"\bwc((?:\s+-\w+)+)", "cat", last.text, count=1)
        return (fact, [*_texts(before), f"{text.rstrip()} ", f" wc {options[1].strip()}"]) if options else None
    if "c" not in last.letters:
        return None
    return fact, [*_texts(before), f"{_grep(last.text, 'h', 'c').rstrip()} ", " wc -l"]


def lines(task: Task, stages: Sequence[Stage]) -> Found | None:
    if not task.occurrences:
        return None
    for place, one in enumerate(stages):
        if one.name != "grep":
            continue
        counts, after = "c" in one.letters, stages[place + 1 :]
        if "o" in one.letters:
            return None if after else ("Let wc count them.", [*_texts(stages), " wc -l"])
        if not counts and not (len(after) == 1 and after[0].program.name == "wc" and "l" in after[0].letters):
            return None
        text = _grep(one.text, "oh" if one.several and "h" not in one.letters else "o", "c")
        said = "grep counts lines, and the task wants to know how often: a line may hold it twice."
        return said, [*_texts(stages[:place]), f"{text.rstrip()} ", " wc -l"]
    return None


def beside(task: Task, command: str) -> Found | None:
    """wc of one file, into a file: there the number alone is wanted."""
    one = found[0][0] if len(found := pipelines(command)) == 1 and len(found[0]) == 1 else Program()
    files = [word for word in one.words[1:] if not re.fullmatch(r"-[clmw]", word)]
    if one.name != "wc" or not task.number or len(files) != 1 or len(one.words) != 3 or one.reads or not one.writes:
        return None
    if _GLOB.search(files[0]) or files[0].startswith("-") or len(one.writes) > 1:
        return None
    way = f"wc {one.words[1]} < {shlex.join(files)} > {shlex.join(one.writes)}"
    return "wc writes the name of the file after the number, unless it reads the file by <.", [way]


RULES: tuple[tuple[str, Rule], ...] = (
    ("ended", ended), ("lines", lines), ("total", total), ("each", each),
)  # fmt: skip


def miscount(task: Task, command: str) -> tuple[str, str, str] | None:
    """The first rule that holds for `command`, by its name, the facts of all that do, and the right command."""
    cd = _CD.match(command.strip())
    head = cd[0] if cd else ""
    line, rule, facts = command.strip()[len(head) :], "", []
    for _ in range(MOST_FACTS):
        stages = split(line)
        found = next(((name, said) for name, one in RULES if stages and (said := one(task, stages))), None)
        found = found or next((("beside", said) for said in (beside(task, line),) if said), None)
        if found is None:
            break
        rule, (fact, texts) = rule or found[0], found[1]
        facts.append(fact)
        line = "|".join(texts).strip()
    return (rule, " ".join(facts), head + line) if facts else None


def split(line: str) -> list[Stage]:
    """The stages of `line`, where that is one pipeline and no more; else none."""
    found = pipelines(_ESCAPED.sub("@", line))
    texts = _STAGE.findall(line)
    if len(found) != 1 or len(found[0]) != len(texts) or "||" in line or "`" in line or "$(" in line:
        return []
    if any(one.writes or one.appends or one.reads for one in found[0]):
        return []
    return [Stage(text, program) for text, program in zip(texts, found[0], strict=True)]
