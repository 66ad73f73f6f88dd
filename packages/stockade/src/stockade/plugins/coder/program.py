"""A program taken apart: what defines things, and the example calls that models put behind it.

Example calls print, ask for input or take for ever; tests of the definitions must not run them. Parsed is text that may
be anything: no exception and no warning gets out.
"""

import ast
import warnings


def syntax_error(code: str) -> SyntaxError | None:
    """None when it compiles. What cannot be compiled for another reason (NUL bytes, nesting) is a SyntaxError too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "main.py", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return SyntaxError(str(error) or type(error).__name__)
    return None


def is_empty(code: str) -> bool:
    """Nothing but comments, strings and `pass`: running it proves nothing."""
    found = statements(code)
    return not code.strip() if found is None else all(_does_nothing(node) for node in found)


def example_lines(code: str) -> tuple[int, ...]:
    """Where the statements begin that are no part of the library; lines count from 1."""
    return tuple(node.lineno for node in statements(code) or () if _is_example(node))


def functions(code: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions at the top of a program; the last of a name counts. Empty when it does not compile."""
    if syntax_error(code) is not None:
        return {}
    found = statements(code) or ()
    return {node.name: node for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_example(node: ast.stmt) -> bool:
    """Calls, loops, prints and asserts at the top; a `main` guard. Assignments of calls may be constants: they stay."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.If(test=test):
            return "__name__" in ast.unparse(test)
        case ast.Expr() | ast.Assert() | ast.For() | ast.While() | ast.With() | ast.AsyncFor() | ast.AsyncWith():
            return True
        case ast.Assign(value=value):
            return any(_reads_input(child) for child in ast.walk(value))
        case _:
            return False


def _reads_input(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "input"


_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def expression(text: str) -> ast.expr | None:
    """The one expression that the text is; None when it is not one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except _UNPARSABLE:
        return None


def statements(text: str) -> list[ast.stmt] | None:
    """The statements of a program; None when it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text).body
    except _UNPARSABLE:
        return None


def literal(text: str) -> str | None:
    """The text of one literal as Python writes it; also `true`, `null` and the like of other languages."""
    text = _FOREIGN.get(text, text)
    if not text or len(text) > 10_000:
        return None
    if text in _EMPTY:
        return text
    node = expression(text)
    if node is None:
        return None
    try:
        ast.literal_eval(node)
    except (*_UNPARSABLE, TypeError):
        return None
    return ast.unparse(node)


_FOREIGN = {"true": "True", "false": "False", "null": "None", "none": "None", "TRUE": "True", "FALSE": "False"}
_EMPTY = frozenset({"set()", "frozenset()", "float('inf')", "float('nan')", "-float('inf')", 'float("inf")'})
