"""What is known about Python before any is run: the checks that a task holds, the signature that it asks for, and what
of a program are definitions and what example calls. Only code is looked at, never the words around it.

Checks are doctests (`>>> f(1)` and its result), `assert` lines, and calls with a sign and a literal behind them on the
same line: `f(1) == 2`, `f(1) -> 2`, `f(1)  # 2`. Only results that are literals count, or the exception after
`Traceback`; what is unclear is left out, for a wrong example fails a right program.

The signature is that of a stub in the task (`def f(a: int) -> str`), else of a call of names there (`f(a, b)`) that the
examples call with values, else of the first example call. Models change names and forget parameters; where the meaning
is clear the program is given the wanted name, else the difference is told. Parsed is text that may be anything: no
exception and no warning gets out.
"""

import ast
import builtins
import doctest
import re
import warnings
from collections.abc import Iterator, Sequence

from stockade.core.data import Data

MAX_EXAMPLES = 40
MAX_TASK_CHARS = 200_000
MAX_LINE_CHARS = 2_000
_CALL = re.compile(r"(?<![\w.])[A-Za-z_]\w*\(")
_GIVES = re.compile(r"\s*`?\s*(?:[-=]+>|==|➞|→|#|//)\s*(?:[-=]+>\s*)?`?\s*")
_CLOSED = re.compile(r"\s*(?:$|[.,;:`)#(]|//)|\s+[A-Za-z\"']")
_DEF = re.compile(r"^[ \t]*(?:async )?def (\w+)\s*\(", re.MULTILINE)
_STUB = re.compile(r"\b(?:async )?def (?=\w+\s*\()")
_RESULT = re.compile(r"[ \t]*->[ \t]*([^:\n`]{1,200})")
_TYPE_NODES = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Tuple,
    ast.List,
    ast.Constant,
    ast.BinOp,
    ast.BitOr,
    ast.Load,
)
_MAX_HEAD_CHARS, _MAX_STUBS = 600, 200
_FENCE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)
_KNOWN = frozenset(dir(builtins))
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration))\b")
_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_FOREIGN = {"true": "True", "false": "False", "null": "None"}
_EMPTY = frozenset({"set()", "frozenset()", "float('inf')", "float('nan')", "-float('inf')", 'float("inf")'})


def statements(text: str) -> list[ast.stmt] | None:
    """The statements of a program; None when it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text).body
    except _UNPARSABLE:
        return None


def expression(text: str) -> ast.expr | None:
    """The one expression that the text is; None when it is not one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except _UNPARSABLE:
        return None


def literal(text: str) -> str | None:
    """The text of one literal as Python writes it; also `true`, `false` and `null` of JSON."""
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


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def functions(code: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions at the top of a program; the last of a name counts. Empty when it does not compile."""
    if syntax_error(code) is not None:
        return {}
    found = statements(code) or ()
    return {node.name: node for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def example_lines(code: str) -> tuple[int, ...]:
    """Where the statements begin that are no part of the library; lines count from 1. They print, ask for input or take
    for ever: tests of the definitions must not run them.
    """
    return tuple(node.lineno for node in statements(code) or () if _is_example(node))


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
            return any(name == "input" for name, _ in _calls(value))
        case _:
            return False


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
    defined = frozenset(_DEF.findall(text))
    for reader in (_doctests, _asserts, _with_sign):
        for example in reader(text):
            if _is_concrete(example, defined):
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


def _with_sign(text: str) -> Iterator[Example]:
    """`f(1, 2)`, with a sign and what it gives behind it on the same line."""
    for line in text.splitlines():
        if len(line) > MAX_LINE_CHARS or line.lstrip().startswith((">>>", "assert ", "def ", "class ")):
            continue
        for start in _CALL.finditer(line):
            call = _balanced(line, start.start())
            sign = _GIVES.match(line, start.start() + len(call)) if call is not None else None
            if call is not None and sign is not None and (expected := _leading_literal(line[sign.end() :])) is not None:
                yield Example(call=call, expected=expected)


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


def _is_concrete(example: Example, defined: frozenset[str]) -> bool:
    """Whether it calls something of the task, with values: `is_happy(a)` stands for other calls.

    Where the task defines functions, calls of others are slips of the pen or pseudo-code.
    """
    tree, before = expression(example.call), statements(example.source)
    if tree is None or before is None:
        return False
    made = {node.id for line in before for node in ast.walk(line) if isinstance(node, ast.Name)}
    called = [name for name, _ in _calls(tree)]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(called) - made
    own = {name for name in called if name not in _KNOWN}
    return names <= _KNOWN and bool(own & defined if defined else own)


class Signature(Data):
    """`text` is the line to show (`def f(a, b)`); `least` and `most` positional arguments it takes, None is any.

    `names` of its positional parameters, as the user wrote them; empty where it is made of a call with values.
    """

    name: str
    text: str
    least: int
    most: int | None
    names: tuple[str, ...] = ()


def wanted(task: str, examples: Sequence[Example] = (), tests: str = "") -> Signature | None:
    """What the task asks for; None when it does not say."""
    calls = [expression(example.call) for example in examples] + list(statements(tests) or ())
    called = {name for tree in calls for name, _ in _calls(tree)} - _KNOWN
    places = [found.end() for found in _STUB.finditer(task)][:_MAX_STUBS]
    stubs = [stub for at in places if (stub := _of_head(task, at, stub=True)) is not None]
    if stubs:
        return next((stub for stub in reversed(stubs) if stub.name in called), stubs[-1])
    for found in _CALL.finditer(task[:MAX_TASK_CHARS]) if called else ():
        if found[0][:-1] in called and (head := _of_head(task, found.start())) is not None and head.names:
            return head
    for example in examples:
        if (made := _of_call(example.call)) is not None:
            return made
    return None


def conform(code: str, signature: Signature) -> tuple[str, str | None]:
    """The program with the wanted function, and what is wrong with it (None: nothing).

    A single function of another name that takes the same arguments is given the wanted name as well.
    """
    found = functions(code)
    if signature.name in found:
        if _fits(found[signature.name], signature):
            return code, None
        return code, f"{signature.name} takes other parameters than wanted: it must be {signature.text}"
    same = [name for name, node in found.items() if not name.startswith("_") and _fits(node, signature)]
    close = [name for name in same if name.replace("_", "").lower() == signature.name.replace("_", "").lower()]
    if len(close or same) == 1:
        return f"{code.rstrip()}\n\n{signature.name} = {(close or same)[0]}\n", None
    return code, f"the function {signature.name} is missing: the program must define {signature.text}"


def _fits(node: ast.FunctionDef | ast.AsyncFunctionDef, signature: Signature) -> bool:
    """Further parameters may have defaults."""
    names = tuple(argument.arg for argument in (*node.args.posonlyargs, *node.args.args))
    if names[: len(signature.names)] != signature.names:
        return False
    return _takes(node, signature.least) or (signature.most is not None and _takes(node, signature.most))


def _of_head(task: str, at: int, *, stub: bool = False) -> Signature | None:
    """Of `f(a: int, b=1) -> int` as it stands there: behind a `def`, or names in place of values."""
    head = _balanced(task[at : at + _MAX_HEAD_CHARS], 0)
    rest = task[at + len(head) : at + len(head) + _MAX_HEAD_CHARS] if head is not None else ")"
    if rest[:1] in (")", "]", "}"):
        return None
    result = _RESULT.match(rest)
    said = result[1].strip() if result else ""
    types = [said[: end.start()].rstrip(".,;") for end in re.finditer(r"[\s.,;]|$", said)][::-1]
    whole = result is not None and rest[result.end() : result.end() + 1] == ":"
    ends = types[:1] if stub and whole else [one for one in types if _is_type(one)][:1]
    for text in (*(f"def {head} -> {end}" for end in ends), f"def {head}"):
        node = next(iter(statements(f"{text}: pass") or ()), None)
        if isinstance(node, ast.FunctionDef):
            least, most = _range(node.args)
            names = tuple(argument.arg for argument in (*node.args.posonlyargs, *node.args.args))
            return Signature(name=node.name, text=" ".join(text.split()), least=least, most=most, names=names)
    return None


def _is_type(text: str) -> bool:
    """Whether it is made of names that types have; words of prose are not."""
    tree = expression(text) if text else None
    nodes = list(ast.walk(tree)) if tree is not None else []
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    plain = all(isinstance(node, _TYPE_NODES) for node in nodes)
    return text == "None" or (plain and bool(names) and all(name in _KNOWN or name[0].isupper() for name in names))


def _of_call(text: str) -> Signature | None:
    for name, call in _calls(expression(text)):
        if name not in _KNOWN:
            names = [_parameter(argument, number) for number, argument in enumerate(call.args, 1)]
            names += [keyword.arg or "**options" for keyword in call.keywords]
            line = f"def {name}({', '.join(names)})"
            return Signature(name=name, text=line, least=len(names), most=len(names))
    return None


def _calls(tree: ast.AST | None) -> Iterator[tuple[str, ast.Call]]:
    """The calls of functions by their name, the outermost first."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node


def _parameter(argument: ast.expr, number: int) -> str:
    """A name and, where the argument shows it, a type: `a1: list`."""
    if literal(ast.unparse(argument)) is None:
        return f"a{number}"
    kind = type(ast.literal_eval(argument)).__name__
    return f"a{number}" if kind == "NoneType" else f"a{number}: {kind}"


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
