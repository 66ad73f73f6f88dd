"""What the programmer answered: requirements, code, example.

Lenient about the form, strict about there being a program. Models put the code under headings, in a fence, in several,
or in none; they write the example as another file that imports the program.
"""

import ast
import re
from collections.abc import Iterator

from stockade.core.data import Data
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from stockade.extend.answers import spoken
from stockade.plugins.coder.answers import PROGRAM_NAMES, Section, find_sections, libraries
from stockade.plugins.coder.program import functions, is_empty, statements, syntax_error

_NAMES = PROGRAM_NAMES | {"answer": "code", "program": "code"}
_PYTHON = frozenset({"", "python", "python3", "py", "py3"})
_MARK = re.compile(r"[ \t]*```+[ \t]*([\w+-]*)")


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
    draft = _of_sections(find_sections(text, _NAMES))
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
    bodies = [body.strip("\n") for language, body, _ in _fences(text) if language.lower() in _PYTHON]
    bodies = [body for body in bodies if body.strip() and not is_empty(body)]
    if not bodies:
        return None
    defining = [number for number, body in enumerate(bodies) if functions(body)]
    first = defining[0] if defining else 0
    behind = bodies[first + 1] if first + 1 < len(bodies) else ""
    usable = behind and syntax_error(behind) is None and not functions(behind)
    return Draft(code=bodies[first], example=behind if usable else "")


def _fences(text: str) -> Iterator[tuple[str, str, int]]:
    """Language, text and last line of each; of one that is never closed that is -1. Line by line: a hostile answer
    costs no more than its length.
    """
    opened: str | None = None
    body: list[str] = []
    for number, line in enumerate(text.split("\n")):
        mark = _MARK.match(line)
        if opened is None:
            opened = mark[1] if mark is not None else None
        elif mark is not None and not line[mark.end() :].strip() and not mark[1]:
            yield opened, "\n".join(body), number
            opened, body = None, []
        else:
            body.append(line)
    if opened is not None:
        yield opened, "\n".join(body), -1


def _whole_fences(text: str) -> str:
    """Of an answer that was cut in words behind its program what is whole; empty when it was cut in the program."""
    found = list(_fences(text))
    whole = bool(found) and found[-1][2] >= 0 and any(functions(body) for _, body, _ in found)
    return "\n".join(text.split("\n")[: found[-1][2] + 1]) if whole else ""


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
