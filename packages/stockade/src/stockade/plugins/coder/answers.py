"""What a programmer answers: `### Requirements`, `### Code`, `### Example`, in fences or not, or under labels.

The Coder reads a program out of it (`read`), lenient about the form and strict about there being a program. As an
answer protocol of any bot (`SectionAnswers`) a program becomes two steps: the file main.py, and a command that installs
what is required and runs it; all else is a section of its name with its text in it, and `### Answer` ends the run.
"""

import ast
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stockade.core.actions import Action, Answer, Shell, Step, ToolCall, WriteFile
from stockade.core.data import Data
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer
from stockade.core.tools import Offered, ToolSpec
from stockade.extend.answers import (
    SHELLS,
    Block,
    TextAnswers,
    action_of,
    as_json,
    as_lines,
    block_of,
    described,
    fenced,
    further,
    here_document,
    names,
    notes,
    salvaged,
    sample,
    short_thought,
    spoken,
)
from stockade.plugins.coder.program import functions, is_empty, statements, syntax_error

_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]*(?:\*\*)?[ \t]*([A-Za-z_]+)((?:[ \t].*)?)$")
_LABEL = re.compile(r"^[ \t]*(?:\*\*)?([A-Z][A-Za-z_]+)(?:\*\*:|:\*\*|:)[ \t]*$")
_FENCE = re.compile(r"^[ \t]*(`{3,})([^`]*)$")


@dataclass(frozen=True, slots=True)
class Fence:
    """The line that opens it, the line behind its last one, and whether that closes it: one with a language begins
    another.
    """

    begin: int
    end: int
    language: str
    closed: bool


def find_fences(lines: Sequence[str]) -> list[Fence]:
    """In order. A hostile answer costs no more than its length."""
    found: list[Fence] = []
    ticks = 0
    for number, line in enumerate(lines):
        if not (mark := _FENCE.match(line)) or len(mark[1]) < ticks:
            continue
        language = mark[2].strip(" \t")
        closes = bool(ticks) and not language
        if ticks:
            found[-1] = Fence(found[-1].begin, number, found[-1].language, closes)
        if not closes:
            found.append(Fence(number, len(lines), language.partition(" ")[0].lower(), closed=False))
        ticks = 0 if closes else len(mark[1])
    return found


@dataclass(frozen=True, slots=True)
class Section:
    """`content` is its lines, each with its end: exact when `fenced`, else without empty ones at the edges. `info`
    are the words behind the heading, `language` that of its first fence. `torn`: there are several fences.
    """

    name: str
    info: str
    content: str
    start: int
    fenced: bool = False
    language: str = ""
    torn: bool = False

    @property
    def body(self) -> str:
        """The content without the end of its last line."""
        return self.content.removesuffix("\n")


def find_sections(text: str, names: Mapping[str, str], most: int = 32) -> list[Section]:
    """The sections whose heading is one of `names` (lower case), under the name it stands for."""
    lines = text.split("\n")
    fences = find_fences(lines)
    inside = {number for one in fences if one.closed for number in range(one.begin, one.end + 1)}
    heads: list[tuple[int, str, str, bool]] = []
    for number, line in enumerate(lines):
        if number in inside:
            continue
        if (head := _head(line, names)) is not None:
            heads.append((number, *head, False))
        elif (name := _label(lines, number, names)) is not None:
            heads.append((number, name, "", True))
        if len(heads) > most:
            break
    sections = []
    for index, (number, name, info, label) in enumerate(heads[:most]):
        end = heads[index + 1][0] if index + 1 < len(heads) else len(lines)
        start = sum(len(line) + 1 for line in lines[:number])
        own = [one for one in fences if number < one.begin < end][: 1 if label else None]
        if not own:
            plain = as_lines("\n".join(lines[number + 1 : end]).strip("\n"))
            sections.append(Section(name, info, plain, start))
            continue
        parts = ["".join(f"{line}\n" for line in lines[one.begin + 1 : min(one.end, end)]) for one in own]
        whole = parts[0] if len(parts) == 1 else "\n".join(part for part in parts if part.strip())
        sections.append(Section(name, info, whole, start, True, own[0].language, torn=len(own) > 1))
    return sections


def section(name: str, info: str, content: str, language: str = "", *, plain: bool = False) -> str:
    """A section with its content, which is whole lines, in a fence, or as it is when `plain`."""
    heading = f"### {name} {info}".rstrip()
    body = content.removesuffix("\n") if plain else fenced(language, "", content)
    return f"{heading}\n{body}"


def _head(line: str, names: Mapping[str, str]) -> tuple[str, str] | None:
    if not (found := _HEADING.match(line.rstrip().rstrip(":*"))):
        return None
    first, rest = found[1].lower(), found[2].strip().rstrip(":*").strip()
    if rest and (whole := names.get(f"{first} {rest.lower()}")):
        return whole, ""
    name = names.get(first)
    # "### Code that counts": prose behind a heading is not part of it, but a path is.
    return None if name is None else (name, rest if name in ("read_file", "write_file", "edit_file") else "")


def _label(lines: list[str], number: int, names: Mapping[str, str]) -> str | None:
    """`Code:` or `**Code:**` right above a fence, which it is for: many models write no other heading. Elsewhere it is
    text.
    """
    found = _LABEL.match(lines[number])
    below = next((line for line in lines[number + 1 : number + 3] if line.strip()), "")
    return names.get(found[1].lower()) if found and _FENCE.match(below) else None


PROGRAM = "main.py"
_BOUNDARY = "\n\n\n# Example\n"
_INSTALL = "python3 -m pip install --quiet "
_RUN = f"python3 {PROGRAM}"
_LIBRARY = re.compile(r"^[a-z](?:[a-z0-9._-]*[a-z0-9])?(?:\[[a-z0-9,_-]+\])?(?:(?:[=!~<>]=|[<>])[0-9a-z.*+!-]+)?$")
_COMMANDS = "awk bash cat cut echo find git grep head ls pip python python3 sed sort tail tar tr uniq wc xargs zip"
_NO_LIBRARY = frozenset(("none", "no", *_COMMANDS.split()))
_IN_TICKS = re.compile(r"`([^`\s]+)`")
_PYTHON = ("", "python", "python3", "py", "py3")
_PROGRAM_NAMES = {
    "requirements": "requirements", "requiements": "requirements", "requirement": "requirements",
    "dependencies": "requirements", "libraries": "requirements",
    "code": "code", "corrected code": "code", "solution": "code",
    "example": "example", "example usage": "example", "usage": "example",
}  # fmt: skip
_DRAFT_NAMES = _PROGRAM_NAMES | {"answer": "code", "program": "code"}
_NAMES = _PROGRAM_NAMES | {
    "answer": "finish", "final answer": "finish", "finish": "finish",
    "command": "shell", "shell": "shell", "bash": "shell",
    "read_file": "read_file", "write_file": "write_file", "edit_file": "edit_file",
    "ask_user": "ask_user", "sub_task": "sub_task", "action": "action",
}  # fmt: skip
_USAGE = {
    "shell": "### shell\nCOMMANDS",
    "read_file": "### read_file PATH",
    "write_file": "### write_file PATH\n```\nTHE WHOLE FILE\n```",
    "edit_file": "### edit_file PATH\n<<<<<<< OLD\nTEXT THAT STANDS ONCE\n=======\nNEW TEXT\n>>>>>>> NEW",
    "ask_user": "### ask_user\nQUESTION",
    "sub_task": "### sub_task\nTASK",
    "finish": "### Answer\nTHE ANSWER   (finish: when the task is done)",
}


def libraries(text: str) -> list[str]:
    """The libraries of a requirements section, in order: one a line or between commas, or as `pip install` has them. A
    line with several words is prose; Python's own modules, and commands of the shell, are none.
    """
    result: dict[str, None] = {}
    for said in text.lower().splitlines():
        said = " ".join(said.split())  # else what follows takes a time that grows with the square of the blanks
        raw = ",".join(_IN_TICKS.findall(said)) or said
        line = re.split(r"\(|#|\s-\s|:", re.sub(r"^\s*(?:[-*+]|\d+[.)])\s+|[`\"']", "", raw))[0]
        line = re.sub(r"\s*([=!~<>]=|[<>])\s*", r"\1", line).strip(" .,")
        pip = re.match(r"pip3? install ", line)
        words = line[pip.end() :].split() if pip else re.split(r"\s*,\s*", line)
        words = [word for word in words if not word.startswith("-")] if pip else words
        if all(_LIBRARY.match(word) for word in words):
            result |= dict.fromkeys(words)
    return [word for word in result if word not in _NO_LIBRARY and word not in sys.stdlib_module_names]


class Draft(Data):
    """A program as it was proposed. `code` holds something; it may still not compile."""

    requirements: tuple[str, ...] = ()
    code: str
    example: str = ""

    @property
    def script(self) -> str:
        """Code and example in one."""
        return (
            f"{self.code.rstrip()}\n\n\n{self.example.strip()}\n" if self.example.strip() else f"{self.code.rstrip()}\n"
        )


def read(answer: ModelAnswer) -> Draft:
    """UnreadableAnswer, with a message for the model, when there is no program in it."""
    text = spoken(answer.content).replace("\r\n", "\n")
    if answer.cut and not (text := _whole_fences(text)):
        raise UnreadableAnswer("The answer was cut off because it is too long: write a shorter program.")
    draft = _of_sections(find_sections(text, _DRAFT_NAMES))
    if draft is None or syntax_error(draft.code) is not None:  # output beside the code, in a fence of its own
        fenced = _of_fences(text) or _bare(text)
        better = fenced is not None and (draft is None or syntax_error(fenced.code) is None)
        draft = fenced if better else draft
    if draft is None or is_empty(draft.code):
        raise UnreadableAnswer("There is no program in the answer: write it under ### Code, in a python fence.")
    return draft.model_copy(update={"example": without_own_import(draft.example, draft.code)})


def _of_sections(found: list[Section]) -> Draft | None:
    """The first section of each name counts, but of the code the first that is Python."""
    python = [part for part in found if part.language in _PYTHON and part.body.strip()]
    code = next((part for part in python if part.name == "code"), None)
    if code is None or (not code.fenced and syntax_error(code.body) is not None):
        return None
    required = next((part.body for part in found if part.name == "requirements"), "")
    example = next((part for part in python if part.name == "example"), None)
    usable = example is not None and syntax_error(example.body) is None  # models put there what it prints, too
    return Draft(
        requirements=tuple(libraries(required)),
        code=code.body.strip("\n"),
        example=example.body.strip("\n") if example is not None and usable else "",
    )


def _of_fences(text: str) -> Draft | None:
    """The first fence with a definition in it, else the first with Python; the one behind it may be the example."""
    lines = text.split("\n")
    bodies = [_text(lines, one).strip("\n") for one in find_fences(lines) if one.language in _PYTHON]
    bodies = [body for body in bodies if body.strip() and not is_empty(body)]
    if not bodies:
        return None
    defining = [number for number, body in enumerate(bodies) if functions(body)]
    first = defining[0] if defining else 0
    behind = bodies[first + 1] if first + 1 < len(bodies) else ""
    usable = behind and syntax_error(behind) is None and not functions(behind)
    return Draft(code=bodies[first], example=behind if usable else "")


def _whole_fences(text: str) -> str:
    """Of an answer that was cut in words behind its program what is whole; empty when it was cut in the program."""
    lines = text.split("\n")
    found = find_fences(lines)
    whole = bool(found) and found[-1].closed and any(functions(_text(lines, one)) for one in found)
    return "\n".join(lines[: found[-1].end + 1]) if whole else ""


def _text(lines: Sequence[str], fence: Fence) -> str:
    return "\n".join(lines[fence.begin + 1 : fence.end])


def _bare(text: str) -> Draft | None:
    """The whole answer, when it is a program that does something; a single word is one for Python, not for us."""
    found = None if "```" in text or syntax_error(text) is not None else statements(text)
    does = any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in found or ())
    return Draft(code=text.strip("\n")) if does else None


def without_own_import(example: str, code: str) -> str:
    """The example without imports, from whatever file, of what the code itself defines."""
    own = {name for node in statements(code) or () for name in _defined(node)}
    lines = example.splitlines()
    for node in statements(example) or ():
        if isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} <= own | {"*"} and own:
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [""] * (last - node.lineno + 1)
    return "\n".join(lines).strip("\n")


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


@dataclass(frozen=True, slots=True)
class SectionAnswers(TextAnswers):
    """A program or one action an answer."""

    name: str = "sections"

    def instructions(self, tools: Sequence[Offered]) -> str:
        program = (
            "A Python program, which is run at once, has three sections:\n### Requirements\nlibraries, one a line, or"
            " none\n### Code\nthe program\n### Example\ncode that uses it and prints the result\n"
        )
        first = program if "shell" in tools else ""
        return f"Answer in sections. {first}Other actions, one an answer:\n{self.listing(tools)}"

    def listing(self, tools: Sequence[Offered]) -> str:
        return "\n".join(_usage(tool) for tool in tools) + further(tools, "under ### Action")

    def parse(self, text: str, tools: Sequence[Offered]) -> Answer:
        found = find_sections(text, _NAMES)
        if not found:
            raise UnreadableAnswer("the headings are missing: write ### Requirements, ### Code and ### Example")
        thought = short_thought(text[: found[0].start])
        if found[0].name in ("requirements", "code", "example"):
            return Answer(thought=thought, steps=_program(found, tools))
        return Answer(thought=thought, steps=(Step(action=_single(found[0], tools)),))

    def write(self, answer: Answer) -> Message:
        thought = re.sub(r"^(\s*)#+", r"\1", answer.thought or "", flags=re.MULTILINE)
        body = _written_program(answer.steps) or "\n".join(_written(step.action) for step in answer.steps)
        return Message(role="assistant", content=f"{thought}\n{body}" if thought else body)


def _usage(tool: Offered) -> str:
    if not isinstance(tool, ToolSpec):
        return _USAGE[tool]
    call = json.dumps({"tool": tool.name, "arguments": sample(tool)}, ensure_ascii=False)
    return f"### Action\n{call}   ({described(tool)}{notes(tool.parameters)})"


def _program(found: Sequence[Section], tools: Sequence[Offered]) -> tuple[Step, ...]:
    commands = next((part for part in found if part.name == "code" and part.language in SHELLS), None)
    if commands is not None:
        return (Step(action=action_of(Block("shell", "", commands.content, commands.start), tools)),)
    texts: dict[str, str] = {}
    for part in found:
        if part.name == "example" and not _is_program(part):
            continue  # "python hello.py" in a shell's fence is no line of the program, nor is a sentence.
        if part.name == "code" and part.language not in _PYTHON:
            raise UnreadableAnswer(f"### Code holds {part.language[:20]}, no Python: write a file by ### write_file")
        texts.setdefault(part.name, part.body)
    code = texts.get("code", "")
    if not code.strip():
        raise UnreadableAnswer("### Code is missing or empty: write the program under it")
    if "shell" not in tools:
        raise UnreadableAnswer("a program cannot be run here: the tools are " + ", ".join(names(tools)))
    example = texts.get("example", "")
    program = f"{code}{_BOUNDARY}{example}\n" if example.strip() else f"{code}\n"
    required = libraries(texts.get("requirements", ""))
    install = f"{_INSTALL}{shlex.join(required)} && " if required else ""
    if "write_file" not in tools:
        return (Step(action=Shell(command=install + here_document("python3 -", program.rstrip("\n")))),)
    return (
        Step(action=WriteFile(path=PROGRAM, content=program)),
        Step(action=Shell(command=f"{install}{_RUN}")),
    )


def _is_program(example: Section) -> bool:
    """Whether it is Python, with mistakes only where it says that it is."""
    return example.language in _PYTHON[1:] or (not example.language and statements(example.body) is not None)


def _single(part: Section, tools: Sequence[Offered]) -> Action:
    if part.name == "action":
        if (found := salvaged(part.body, tools)) is None:
            raise UnreadableAnswer("### Action holds no JSON object with a tool")
        return found[1]
    return action_of(Block(part.name, part.info, part.content, part.start, torn=part.torn), tools)


def _written(action: Action) -> str:
    """A section that reads back as it was, as JSON where only that keeps every character."""
    form = None if isinstance(action, ToolCall) else block_of(action)
    if form is not None:
        text = section(*form)
        try:
            found = find_sections(text, _NAMES)
            if len(found) == 1 and _single(found[0], (action.tool, "finish")) == action:
                return text
        except UnreadableAnswer:
            pass  # Only JSON can say it.
    return section("Action", "", as_lines(as_json(action)))


def _written_program(steps: Sequence[Step]) -> str | None:
    """The three sections of the two steps of a program; None for other steps."""
    match [step.action for step in steps]:
        case [WriteFile(path=path, content=content), Shell(command=command)] if path == PROGRAM:
            install, _, rest = command.rpartition(_RUN)
            required = install.removeprefix(_INSTALL).removesuffix(" && ")
            if rest or (install and install != f"{_INSTALL}{required} && "):
                return None
            code, boundary, example = content.removesuffix("\n").rpartition(_BOUNDARY)
            parts = [
                section("Requirements", "", as_lines("\n".join(shlex.split(required)) or "none"), plain=True),
                section("Code", "", as_lines(code if boundary else example), language="python"),
            ]
            if boundary:
                parts.append(section("Example", "", as_lines(example), language="python"))
            return "\n".join(parts)
        case _:
            return None
