"""Answers as one fenced block: ```` ```bash ```` is a command, ```` ```finish ```` the end; and fenced blocks, read as
CommonMark does.

The first block counts and the rest is cut: small models write the command and, right behind it, the block that says
they are done. What a block cannot spell exactly goes into the history as a ```` ```json ```` block with the action.

A fence ends at the next bare one that is at least as long. A block has a language, words behind it and lines, which are
exact: none at all is the empty text, an empty one a line break. A text with fences in it needs a longer fence around
it; one where that was forgotten is refused, not guessed at.
"""

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stockade.answers.action_codec import further, make_action, short_thought, tool_named
from stockade.answers.calls import TextAnswers, as_json, salvaged
from stockade.answers.tool_specs import described, from_text, notes, sample, spec_named
from stockade.core.actions import (
    Action,
    Answer,
    AskUser,
    EditFile,
    Finish,
    ReadFile,
    Shell,
    Step,
    SubTask,
    ToolCall,
    WriteFile,
)
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelRequest
from stockade.core.tools import Offered, ToolSpec

# No pattern may read one blank in two places: a line of blanks would take a time that grows with a power of its length.
_FENCE = re.compile(r"^([ \t]*)(`{3,})([^`]*)$")
# "shell: ```bash": small models keep words in front of an opening fence that has a language.
_OPENING = re.compile(r"^([ \t]*)(?:[^`]{0,80}[ \t:])?(`{3,})([ \t]*[A-Za-z][^`]*)$")
_ONE_LINE = re.compile(r"^[ \t]*(`{3,})([\w+-]+)[ \t]+([^ \t].*)$")
# Tags without quotes only in capitals: `1 << n` is arithmetic.
_HERE = re.compile(r"(?<!<)<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Z_][A-Z0-9_]*)\b)")
_BLANKS = " \t\r"
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
    lines, blocks = text.split("\n"), list[Block]()
    number = start = 0
    while number < len(lines) and len(blocks) < most:
        end = number
        if (single := _in_one_line(lines[number])) is not None:
            blocks.append(Block(single[0], "", f"{single[1]}\n", start))
        elif opened := _FENCE.match(lines[number]) or _OPENING.match(lines[number]):
            language, _, info = opened[3].strip(_BLANKS).partition(" ")
            end, torn = _end(lines, number + 1, len(opened[2]), len(opened[1]))
            body = [_outdented(line, len(opened[1])) for line in lines[number + 1 : end]]
            complete = end < len(lines)
            if not complete and body and not body[-1]:
                body.pop()  # The text ends in a line break.
            if not complete and body and (last := body[-1].rstrip()).endswith("```"):
                body[-1], complete = last.rstrip("`"), True
            content = "".join(f"{line}\n" for line in body)
            blocks.append(Block(language.lower(), info.strip(), content, start, complete, torn))
        start += sum(len(line) + 1 for line in lines[number : end + 1])
        number = end + 1
    return blocks


def _in_one_line(line: str) -> tuple[str, str] | None:
    """Language and content of a block that begins and ends there."""
    if (found := _ONE_LINE.match(line)) and (said := found[3].rstrip(" \t")).endswith(found[1]):
        content = said.removesuffix(found[1]).rstrip(" \t")
        return (found[2].lower(), content) if content else None
    return None


def _outdented(line: str, columns: int) -> str:
    return line[columns:] if not line[:columns].strip() else line


def _end(lines: list[str], first: int, ticks: int, indented: int) -> tuple[int, bool]:
    """The line that ends the block, and whether a fence as long as its own, with a language, stands before that."""
    torn = False
    for number in range(first, len(lines)):
        fence = _FENCE.match(lines[number])
        if fence and len(fence[2]) >= ticks and len(fence[1]) <= indented + _MOST_INDENTED:
            if not fence[3].strip(_BLANKS):
                return number, torn
            torn = True
    return len(lines), torn


def cut_in_here_document(command: str) -> bool:
    """True when a here-document of `command` has no end: the shell would take the rest for granted."""
    lines = iter(command.split("\n"))
    for line in lines:
        if begun := _HERE.search(line):
            tag = begun[2] or begun[3] or begun[4]
            if not any((later.lstrip("\t") if begun[1] else later) == tag for later in lines):
                return True
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


def languages(blocks: Sequence[Block]) -> str:
    """For a message: what the blocks were in."""
    return ", ".join(sorted({block.language or "no language" for block in blocks}))[:80]


SHELLS = ("bash", "sh", "shell", "zsh", "console", "shell-session", "terminal", "cmd")
PYTHONS = ("python", "python3", "py")
_TERMINALS = ("console", "shell-session", "terminal")
"""Languages of a session that was copied, with a `$ ` before what was typed."""
TEXTS = ("write_file", "edit_file", "finish", "ask_user", "sub_task")
"""Languages whose body is text in which fences may stand."""
LONGER = "around a text with fences in it write a longer fence (````)"
_ASIDE = ("json", "text", "txt", "output", "plaintext", "markdown", "md")
_OLD, _MIDDLE, _NEW = "<<<<<<< OLD", "=======", ">>>>>>> NEW"
_RANGE = re.compile(r"^(\d+)[ \t]*-[ \t]*(\d+)$")
USAGE = {
    "shell": "A command for the shell:\n```bash\nCOMMAND\n```",
    "read_file": "A file to read (read_file):\n```read_file PATH\n```",
    "write_file": "A file to write (write_file):\n```write_file PATH\nTHE WHOLE FILE\n```",
    "edit_file": "A text to replace (edit_file):\n```edit_file PATH\n"
    f"{_OLD}\nTEXT THAT STANDS ONCE\n{_MIDDLE}\nNEW TEXT\n{_NEW}\n```",
    "ask_user": "A question to the person (ask_user):\n```ask_user\nQUESTION\n```",
    "sub_task": "A task for a helper (sub_task):\n```sub_task\nTASK\n```",
    "finish": "When the task is done (finish):\n```finish\nTHE ANSWER\n```",
}

_NAMELESS = "PATH"
"""As the instructions have it where a name belongs."""


def is_action(block: Block, tools: Sequence[Offered]) -> bool:
    """True when the language of a block names an action, offered or not; prose and data are none."""
    if block.language in (*SHELLS, *PYTHONS, *USAGE):
        return True
    if not block.language or block.language in _ASIDE:
        return False
    try:
        tool_named(block.language, tools)
    except UnreadableAnswer:
        return bool(
            difflib.get_close_matches(block.language, [tool.name for tool in tools if not isinstance(tool, str)])
        )
    return True


def action_of(block: Block, tools: Sequence[Offered]) -> Action:
    """The action of a block whose language names one. UnreadableAnswer when it does not fit."""
    if block.torn:
        raise UnreadableAnswer(f"a fence as long as its own stands in the {block.language} block: {LONGER}")
    if block.language in PYTHONS:
        return make_action("shell", {"command": _command(here_document("python3 -", block.body), block)}, tools)
    tool = "shell" if block.language in SHELLS or not block.language else tool_named(block.language, tools)
    if tool == "shell":
        return make_action("shell", {"command": _command(_joined(block), block)}, tools)
    if (spec := spec_named(tool, tools)) is not None:
        return make_action(tool, from_text(spec, _joined(block)), tools)
    return make_action(tool, _arguments(tool, block), tools)


def usage_of(tool: Offered) -> str:
    """The block of a tool as an example."""
    if not isinstance(tool, ToolSpec):
        return USAGE[tool]
    body = json.dumps(sample(tool), ensure_ascii=False)
    return f"{described(tool) or 'A tool'} ({tool.name}{notes(tool.parameters)}):\n```{tool.name}\n{body}\n```"


def _joined(block: Block) -> str:
    """What stands behind the language belongs to the body."""
    return f"{block.info}\n{block.body}" if block.info and block.body else block.info or block.body


def _command(text: str, block: Block) -> str:
    command = without_prompts(text) if block.language in _TERMINALS else text
    if not command.strip():
        raise UnreadableAnswer("the block is empty: write a command in it")
    if cut_in_here_document(command):
        raise UnreadableAnswer(f"a here-document of the command has no end: write its last line too; {LONGER}")
    return command


def _arguments(tool: str, block: Block) -> dict[str, Any]:
    match tool:
        case "read_file":
            return _read_arguments(block)
        case "write_file":
            path, content = _path_and_content(block)
            return {"path": path, "content": content}
        case "edit_file":
            path, content = _path_and_content(block)
            return {"path": path} | _replacement(content.removesuffix("\n"))
        case "ask_user":
            return {"question": _own(_joined(block), "QUESTION")}
        case "sub_task":
            return {"task": _own(_joined(block), "TASK")}
        case _:
            return {"answer": _own(_joined(block), "THE ANSWER")}


def _own(text: str, example: str) -> str:
    """The text, unless it is what stands for one in the instructions."""
    if text.strip() == example:
        raise UnreadableAnswer(f"{example} stands for your own words: write those")
    return text


def _path_and_content(block: Block) -> tuple[str, str]:
    if block.info:
        return _bare(block.info), block.content
    path, _, content = block.content.partition("\n")
    if not path.strip():
        raise UnreadableAnswer(f"{block.language}: the path is missing: write it behind ```{block.language}")
    return _bare(path), content


def _bare(path: str) -> str:
    """A path without the quotes, or the `path=`, that models put around it."""
    path = re.sub(r"^path\s*[=:]\s*", "", path.strip())
    if path == _NAMELESS:
        raise UnreadableAnswer(f"{_NAMELESS} stands for the name of a file: write that")
    return path[1:-1] if len(path) > 2 and path[0] == path[-1] and path[0] in "'\"" else path


def _read_arguments(block: Block) -> dict[str, Any]:
    path, content = _path_and_content(block)
    span = _RANGE.match(content.strip())
    return {"path": path, "start": int(span[1][:9]), "end": int(span[2][:9])} if span else {"path": path}


def _replacement(body: str) -> dict[str, str]:
    lines = body.split("\n")
    marks = [number for number, line in enumerate(lines) if line.startswith(("<<<<<<<", "=======", ">>>>>>>"))]
    if len(marks) != 3 or [lines[mark][0] for mark in marks] != ["<", "=", ">"]:
        raise UnreadableAnswer(f"edit_file: write {_OLD}, the old text, {_MIDDLE}, the new text, {_NEW}, a line each")
    first, middle, last = marks
    return {"old": "\n".join(lines[first + 1 : middle]), "new": "\n".join(lines[middle + 1 : last])}


def block_of(action: Action) -> tuple[str, str, str] | None:
    """Language, words behind it and content, which is whole lines; None for what has no such form."""
    match action:
        case Shell(timeout_s=None, command=command):
            return "bash", "", as_lines(command)
        case ReadFile(path=path, start=None, end=None):
            return "read_file", path, ""
        case ReadFile(path=path, start=int(start), end=int(end)):
            return "read_file", path, f"{start}-{end}\n"
        case WriteFile(path=path, content=content) if not content or content.endswith("\n"):
            return "write_file", path, content
        case EditFile(path=path, old=old, new=new):
            lines = [_OLD, old, _MIDDLE, *([new] if new else []), _NEW]
            return "edit_file", path, as_lines("\n".join(lines))
        case AskUser(question=question):
            return "ask_user", "", as_lines(question)
        case SubTask(task=task, max_turns=None, name=None, model=None, in_parallel=()):
            return "sub_task", "", as_lines(task)
        case Finish(answer=answer):
            return "finish", "", as_lines(answer)
        case ToolCall(name=name, arguments=arguments):
            return name, "", as_lines(json.dumps(arguments, ensure_ascii=False))
        case _:
            return None


STOP = ("```\n\n```bash",)
"""A second command right behind the first one would be cut anyway."""


@dataclass(frozen=True, slots=True)
class FencedAnswers(TextAnswers):
    """One action an answer."""

    name: str = "fenced"

    def instructions(self, tools: Sequence[Offered]) -> str:
        longer = f"\nA{LONGER[1:]}." if "write_file" in tools or "edit_file" in tools else ""
        return f"Answer with one short sentence and then exactly one block of these:\n{self.listing(tools)}{longer}"

    def listing(self, tools: Sequence[Offered]) -> str:
        """The end comes last: what a small model reads first it takes for what is wanted."""
        in_order = sorted(tools, key=lambda tool: tool == "finish")
        return "\n".join(usage_of(tool) for tool in in_order) + further(tools, "in a ```json block")

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request.model_copy(update={"stop": STOP})

    def parse(self, text: str, tools: Sequence[Offered]) -> Answer:
        if not text.strip():
            raise UnreadableAnswer(f"the answer is empty: {_way_out(tools)}")
        blocks = find_blocks(text)
        chosen = next((block for block in blocks if is_action(block, tools) or _as_json(block, tools)), None)
        if chosen is None:
            return _blockless(text, blocks, tools)
        action = _as_json(chosen, tools) or action_of(chosen, tools)
        behind = blocks[blocks.index(chosen) + 1 :]
        if chosen.language in TEXTS and any(not block.language for block in behind):
            raise UnreadableAnswer(f"a bare fence stands behind the {chosen.language} block: {LONGER}")
        return Answer(thought=short_thought(text[: blocks[0].start]), steps=(Step(action=action),))

    def write(self, answer: Answer) -> Message:
        block = "\n".join(spelled(step.action) for step in answer.steps)
        thought = re.sub(r"`{3,}", "``", answer.thought or "")
        return Message(role="assistant", content=f"{thought}\n{block}" if thought else block)


def _as_json(block: Block, tools: Sequence[Offered]) -> Action | None:
    """The action of a block that holds JSON; None where it holds none."""
    if block.language not in ("json", "") or not block.body.lstrip().startswith("{"):
        return None
    found = salvaged(block.body, tools)
    return found[1] if found else None


def _blockless(text: str, blocks: Sequence[Block], tools: Sequence[Offered]) -> Answer:
    """JSON without a fence is taken; anything else is an error that says what was there instead."""
    if not blocks and (found := salvaged(text, tools)) is not None:
        return Answer(thought=short_thought(found[0]), steps=(Step(action=found[1]),))
    seen = f"its blocks are in: {languages(blocks)}" if blocks else "it has no block"
    raise UnreadableAnswer(f"the answer holds no action ({seen}): {_way_out(tools)}")


def _way_out(tools: Sequence[Offered]) -> str:
    """What to write instead: a command, where there is a shell."""
    if "shell" in tools:
        return "write the command in one bash block"
    name = next((tool.name for tool in tools if isinstance(tool, ToolSpec)), None) or next(iter(tools), "finish")
    return f"write one block, such as ```{name}"


def spelled(action: Action) -> str:
    """The block of an action, as JSON where only that keeps every character."""
    form = block_of(action)
    if form is not None:
        text = fenced(*form)
        if isinstance(action, ToolCall):
            return text
        try:
            found = find_blocks(text)
            if len(found) == 1 and action_of(found[0], (action.tool, "finish")) == action:
                return text
        except UnreadableAnswer:
            pass  # An empty command, half a here-document: only JSON can say it.
    return fenced("json", "", as_lines(as_json(action)))
