"""Worked examples in the words of a task: calls and what they should give.

Read are doctests (`>>> f(1)` and its result), `f(1) -> 2`, `f(1) == 2`, `f(1) returns 2`, `f(1)  # 2`, `assert` lines,
and for a function that the task names `Input: 1` `Output: 2` and `For a = 1 the result should be 2`. Only results that
are literals count, or the exception after `Traceback`; what is unclear is left out, for a wrong example fails a right
program.
"""

import ast
import builtins
import doctest
import re
from collections.abc import Iterator

from stockade.core.data import Data
from stockade.tools.code.trees import expression, literal, statements

MAX_EXAMPLES = 40
MAX_TASK_CHARS = 200_000
MAX_LINE_CHARS = 2_000
_CALL = re.compile(r"(?<![\w.])[A-Za-z_]\w*\(")
_GIVES = re.compile(
    r"\s*`?\s*(?:[-=]+>|==|➞|→|\|)?\s*(?:#|//)?\s*(?:[-=]+>\s*)?(?:[;,:]\s*)?(?:should |must |will |would )?"
    r"(?:be|returns?|gives?|equals?|outputs?|is)?\s*[`:]?\s*"
)
_SIGNS = ("->", "=>", "==", "➞", "→", "#", "return", "give", "equal", "output", "//", "be", "is")
_CLOSED = re.compile(r"\s*(?:$|[.,;:`)#(]|//)|\s+[A-Za-z\"']")
_INPUT = re.compile(
    r"^[ \t]*Input[ \t]*:\s*(?P<given>.+?)\s*\n\s*Output\s*:\s*(?P<gives>.+)$", re.MULTILINE | re.IGNORECASE
)
_FOR = re.compile(
    r"^[ \t]*For\s+(?P<given>\w+\s*=.+?),?\s+the\s+(?:output|result|answer)\s+(?:should be|is|must be)"
    r"\s+(?P<gives>.+)$",
    re.MULTILINE | re.IGNORECASE,
)
_DEF = re.compile(r"^[ \t]*(?:async )?def (\w+)\s*\(", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)
_KNOWN = frozenset(dir(builtins))
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration))\b")


class Example(Data):
    """`call` should give `expected`, a literal as Python writes it, or raise `raises`; `source` runs before it."""

    call: str
    expected: str | None = None
    raises: str | None = None
    source: str = ""


def find_examples(task: str) -> tuple[Example, ...]:
    """At most `MAX_EXAMPLES`, each call once, in order of their kind."""
    found: dict[tuple[str, str], Example] = {}
    text = task[:MAX_TASK_CHARS]
    wanted = frozenset(_DEF.findall(text))
    for reader in (_doctests, _asserts, _said, _tables):
        for example in reader(text):
            if _is_concrete(example, wanted):
                found.setdefault((example.source, example.call), example)
    return tuple(found.values())[:MAX_EXAMPLES]


def _doctests(text: str) -> Iterator[Example]:
    """Statements before a call in the same block stay with it: `>>> x = [1]`, `>>> f(x)`."""
    for block in re.split(r"\n\s*\n", _FENCE.sub("\n", text)):
        before: list[str] = []
        try:
            parsed = doctest.DocTestParser().get_examples(block)
        except ValueError:
            continue
        for one in parsed:
            call, source = one.source.strip(), "\n".join(before)
            if one.exc_msg is not None:
                if raised := _RAISED.match(one.exc_msg):
                    yield Example(call=call, raises=raised[1].rpartition(".")[2], source=source)
            elif wanted := _without_quotes(one.want):
                if expression(call) is not None and (expected := literal(wanted)) is not None:
                    yield Example(call=call, expected=expected, source=source)
            elif (compared := expression(call)) is not None:
                yield from _of_assertion(compared)
            elif statements(call) is not None:
                before.append(call)


def _without_quotes(text: str) -> str:
    """Without those that end a docstring on the line after the result."""
    return text.strip().removesuffix('"""').removesuffix("'''").strip()


def _asserts(text: str) -> Iterator[Example]:
    for line in text.splitlines():
        found = statements(line.strip()) if line.strip().startswith("assert ") else None
        if found and isinstance(found[0], ast.Assert):
            test = found[0].test
            if isinstance(test, ast.Call):
                yield Example(call=ast.unparse(test), expected="True")
            elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                yield Example(call=ast.unparse(test.operand), expected="False")
            else:
                yield from _of_assertion(test)


def _of_assertion(test: ast.expr) -> Iterator[Example]:
    match test:
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            if (expected := literal(ast.unparse(right))) is not None:
                yield Example(call=ast.unparse(call), expected=expected)
        case _:
            return


def _said(text: str) -> Iterator[Example]:
    """`f(1, 2)` in running words, with what it gives behind it on the same line."""
    for line in text.splitlines():
        if len(line) > MAX_LINE_CHARS or line.lstrip().startswith((">>>", "assert ", "def ", "class ")):
            continue
        for start in _CALL.finditer(line):
            call = _balanced(line, start.start())
            if call is None:
                continue
            rest = line[start.start() + len(call) :]
            sign = _GIVES.match(rest)
            if sign is None or not any(word in f" {sign[0]} " for word in _SIGNS):
                continue
            if (expected := _leading_literal(rest[sign.end() :])) is not None:
                yield Example(call=call, expected=expected)


def _tables(text: str) -> Iterator[Example]:
    """Inputs and outputs without a call, where the task names one function."""
    names = set(_DEF.findall(text))
    if len(names) != 1:
        return
    name = names.pop()
    for found in (*_INPUT.finditer(text), *_FOR.finditer(text)):
        expected = _leading_literal(found["gives"])
        if expected is not None:
            yield Example(call=f"{name}({found['given']})", expected=expected)


def _balanced(line: str, start: int) -> str | None:
    """From `start` to the bracket that closes the first one; quotes are respected."""
    depth, quote = 0, ""
    for place in range(start, len(line)):
        char = line[place]
        if quote:
            if char == quote and line[place - 1] != "\\":
                quote = ""
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if not depth:
                return line[start : place + 1]
    return None


def _leading_literal(text: str) -> str | None:
    """The longest beginning that is a literal, if what follows is not a calculation with it."""
    text = _without_quotes(text.rstrip("`"))
    ends = {len(text), *(found.end() for found in re.finditer(r"[)\"'\]}]", text))}
    ends |= {found.start() for found in re.finditer(r"[\s.,;:`)\"'\]}]", text)}
    for end in sorted(ends, reverse=True)[:200]:
        if (found := literal(text[:end].strip().rstrip(".,;:`"))) is not None:
            return found if _CLOSED.match(text[end:]) else None
    return None


def _is_concrete(example: Example, wanted: frozenset[str]) -> bool:
    """Whether it calls something of the task, with values: `is_happy(a)` stands for other calls.

    Where the task shows what it wants by name, calls of other names are slips of the pen or pseudo-code.
    """
    tree, before = expression(example.call), statements(example.source)
    if tree is None or before is None:
        return False
    made = {node.id for line in before for node in ast.walk(line) if isinstance(node, ast.Name)}
    called = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(called) - made
    own = {name for name in called if name not in _KNOWN}
    return names <= _KNOWN and bool(own & wanted if wanted else own)
