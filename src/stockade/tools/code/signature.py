"""The signature that a task asks for, and a program made to have it.

From a stub in the task (`def f(a: int) -> str:`), else from the first example call. Models change names and forget
parameters; where the meaning is clear the program is given the wanted name, else the difference is told.
"""

import ast
import builtins
import re
from collections.abc import Sequence

from stockade.core.data import Data
from stockade.tools.code.examples import Example
from stockade.tools.code.program import functions
from stockade.tools.code.trees import expression, literal, statements

_STUB = re.compile(r"^[ \t]*(?:async )?def (\w+)\s*\(", re.MULTILINE)
_COMMON = frozenset(dir(builtins))


class Signature(Data):
    """`text` is the line to show (`def f(a, b)`); `least` and `most` positional arguments it takes, None is any."""

    name: str
    text: str
    least: int
    most: int | None


def wanted(task: str, examples: Sequence[Example] = ()) -> Signature | None:
    """What the task asks for; None when it does not say."""
    stubs = [found for match in _STUB.finditer(task) if (found := _of_stub(task[match.start() :].lstrip())) is not None]
    if stubs:
        called = {name for example in examples for name in _called(example.call)}
        return next((stub for stub in reversed(stubs) if stub.name in called), stubs[-1])
    for example in examples:
        if (found := _of_call(example.call)) is not None:
            return found
    return None


def conform(code: str, signature: Signature) -> tuple[str, str | None]:
    """The program with the wanted function, and what is wrong with it (None: nothing).

    A single function of another name that takes as many arguments is given the wanted name as well.
    """
    found = functions(code)
    if signature.name in found:
        node = found[signature.name]
        if _takes(node, signature.least) or (signature.most is not None and _takes(node, signature.most)):
            return code, None
        return code, f"{signature.name} takes other parameters than wanted: it must be {signature.text}"
    same = [name for name, node in found.items() if not name.startswith("_") and _takes(node, signature.least)]
    close = [name for name in same if name.replace("_", "").lower() == signature.name.replace("_", "").lower()]
    if len(close or same) == 1:
        return f"{code.rstrip()}\n\n{signature.name} = {(close or same)[0]}\n", None
    return code, f"the function {signature.name} is missing: the program must define {signature.text}"


def _of_stub(text: str) -> Signature | None:
    """The first `def` of the text, however its body goes on."""
    depth = 0
    for place, char in enumerate(text[:2000]):
        depth += (char in "([{") - (char in ")]}")
        if char == ":" and not depth:
            node = next(iter(statements(f"{text[: place + 1]}\n    pass") or ()), None)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                least, most = _range(node.args)
                return Signature(name=node.name, text=" ".join(text[:place].split()), least=least, most=most)
            return None
    return None


def _of_call(text: str) -> Signature | None:
    tree = expression(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in _COMMON:
            names = [_parameter(argument, number) for number, argument in enumerate(node.args, 1)]
            names += [keyword.arg or "**options" for keyword in node.keywords]
            return Signature(name=node.func.id, text=f"def {node.func.id}({', '.join(names)})",
                             least=len(names), most=len(names))  # fmt: skip
    return None


def _parameter(argument: ast.expr, number: int) -> str:
    """A name and, where the argument shows it, a type: `a1: list`."""
    if literal(ast.unparse(argument)) is None:
        return f"a{number}"
    kind = type(ast.literal_eval(argument)).__name__
    return f"a{number}" if kind == "NoneType" else f"a{number}: {kind}"


def _called(text: str) -> set[str]:
    tree = expression(text)
    if tree is None:
        return set()
    return {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def _range(arguments: ast.arguments) -> tuple[int, int | None]:
    """Least and most arguments that a call may give."""
    positional = len(arguments.posonlyargs) + len(arguments.args)
    needed = positional - len(arguments.defaults) + sum(default is None for default in arguments.kw_defaults)
    if arguments.vararg or arguments.kwarg:
        return needed, None
    return needed, positional + len(arguments.kwonlyargs)


def _takes(node: ast.FunctionDef | ast.AsyncFunctionDef, count: int) -> bool:
    least, most = _range(node.args)
    return least <= count and (most is None or count <= most)
