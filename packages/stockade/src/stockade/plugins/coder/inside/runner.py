"""Runs one program inside the sandbox. Its text is copied there: the standard library only, Python 3.8 and later.

    python3 run.py JOB REPORT [LINE,LINE...]

JOB is a file of JSON: `limit_s` of wall-clock time, `examples` and `tests` (report.Job). Without both, main.py of the
current folder is run as a script; else it is loaded, without the statements that begin at LINEs, and each check is
done. REPORT is written last, by a process that the program cannot reach: what ends early has passed nothing. Nothing
that the program started is alive at the end.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import math
import os
import signal
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # each import costs an attempt milliseconds: what not every one needs is imported where it is used
    import ast
    from typing import Any

FILE = "main.py"
MOST_FAILED, MOST_CHARS = 20, 400
_LAST_WORDS_S = 0.3
_PR_SET_CHILD_SUBREAPER = 36
_ONLY_AST = 0x400
"""ast.PyCF_ONLY_AST"""
_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None))


class WrongValue(AssertionError):
    """A comparison that did not hold."""

    def __init__(self, call: str, expected: str, got: str) -> None:
        super().__init__(f"{call} gave {got}, not {expected}")
        self.failed = {"call": call, "expected": expected, "got": got}


class Checks:
    """What was checked so far."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[dict[str, str]] = []
        self.told = False

    def do(self, name: str, work: Any) -> None:
        """One check: whatever it raises makes it a failed one. The first traceback is shown."""
        try:
            work()
        except WrongValue as wrong:
            self.fail(wrong.failed)
        except BaseException as error:  # noqa: BLE001 - of the program, and its result
            if not self.told:
                self.told = True
                show(error)
            self.fail({"call": name, "expected": "", "got": cut(f"{type(error).__name__}: {error}")})
        else:
            self.passed += 1

    def fail(self, failed: dict[str, str]) -> None:
        self.failed.append({key: cut(value) for key, value in failed.items()})


def cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS // 2]} ... {text[-MOST_CHARS // 2 :]}"


def shown(value: Any) -> str:
    try:
        return cut(repr(value))
    except BaseException as error:  # noqa: BLE001 - of the program, and its result
        return f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"


def show(error: BaseException) -> None:
    """The traceback without our own frames."""
    import traceback  # noqa: PLC0415

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace, limit=-20)
    sys.stderr.flush()


def same(got: Any, expected: Any) -> bool:
    """Equal values of Python's own types, floats to six digits; a class of the program's own is never asked."""
    if isinstance(expected, float) or isinstance(got, float):
        if not isinstance(got, (int, float)) or not isinstance(expected, (int, float)):
            return False
        return math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-6) or (got != got and expected != expected)
    if type(got) not in _PLAIN:
        return repr(got) == repr(expected)
    if isinstance(expected, (list, tuple)):
        return type(got) is type(expected) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, dict):
        return type(got) is dict and got.keys() == expected.keys() and all(same(got[key], expected[key]) for key in got)
    return bool(got == expected)


def example(one: dict[str, Any], module: types.ModuleType) -> None:
    """Raises when a worked example does not hold."""
    space = dict(vars(module))
    exec(compile(one["source"], "example", "exec"), space)
    try:
        got = eval(compile(one["call"], "example", "eval"), space)
    except Exception as error:
        if one["raises"] and one["raises"] in [kind.__name__ for kind in type(error).__mro__]:
            return
        raise
    if one["raises"]:
        raise WrongValue(one["call"], one["raises"] + " (raised)", shown(got))
    if not same(got, eval(one["expected"])):
        raise WrongValue(one["call"], one["expected"], shown(got))


def compared(text: str) -> ast.Module:
    """The tests, in which each `assert a == b` is a call that says what `a` was."""
    import ast  # noqa: PLC0415

    class Compared(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.AST:
            test = node.test
            if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is))):
                return node
            call = ast.get_source_segment(text, test.left) or "the value"
            name = ast.Name(id="__equal__", ctx=ast.Load())
            made = ast.Expr(ast.Call(func=name, args=[test.left, test.comparators[0], ast.Constant(call)], keywords=[]))
            return ast.fix_missing_locations(ast.copy_location(made, node))

    tree: ast.Module = Compared().visit(ast.parse(text, "tests.py"))
    return tree


def equal(got: Any, expected: Any, call: str) -> None:
    if not got == expected:
        raise WrongValue(call, shown(expected), shown(got))


def tests(text: str, module: types.ModuleType, checks: Checks) -> None:
    """The statements of a test file, each assert a check; then its test functions and the tests of its classes."""
    import ast  # noqa: PLC0415

    tree = compared(text)
    given = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    space: dict[str, Any] = {**given, "__equal__": equal, "__name__": "tests"}
    lines = text.splitlines()
    for node in tree.body:
        code = compile(ast.Module(body=[node], type_ignores=[]), "tests.py", "exec")
        called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if isinstance(node, ast.Assert) or called is not None:
            checks.do(lines[node.lineno - 1].strip(), lambda code=code: exec(code, space))
        elif not isinstance(node, ast.If):  # a main guard would run the tests a second time
            exec(code, space)
    for name, value in list(space.items()):
        if name in given:
            continue
        if name.startswith("test") and isinstance(value, types.FunctionType):
            checks.do(name, value)
        elif isinstance(value, type) and any(base.__name__ == "TestCase" for base in value.__mro__):
            for method in [method for method in dir(value) if method.startswith("test")]:
                checks.do(f"{name}.{method}", value(method).debug)


def load(job: dict[str, Any], skipped: set[int]) -> types.ModuleType:
    """The program as a module, under every name that tests may import it by."""
    module = types.ModuleType("main")
    module.__file__ = os.path.abspath(FILE)
    for name in ("main", "solution", *job["names"]):
        sys.modules[name] = module
    exec(compile(job["prelude"], "prelude", "exec", dont_inherit=True), vars(module))
    with open(FILE, encoding="utf-8") as file:
        tree = compile(file.read(), FILE, "exec", _ONLY_AST, dont_inherit=True)
    tree.body = [node for node in tree.body if node.lineno not in skipped]
    exec(compile(tree, FILE, "exec", dont_inherit=True), vars(module))
    return module


def inside(job: dict[str, Any], report: int, skipped: set[int], token: str) -> int:
    """In the child: loads and checks. What was found out goes to `report` at the very end, with `token`: what the
    program itself writes there is none.
    """
    sys.path[0], sys.argv = os.getcwd(), [FILE]
    checks, loaded = Checks(), False
    try:
        module = load(job, skipped)
        loaded = True
        for one in job["examples"]:
            checks.do(one["call"], lambda one=one: example(one, module))
        if job["tests"]:
            tests(job["tests"], module, checks)
        whole = True
    except BaseException as error:  # noqa: BLE001 - of the program, and its result
        show(error)
        whole = False
    found = {"loaded": loaded, "whole": whole, "passed": checks.passed, "failures": len(checks.failed),
             "failed": checks.failed[:MOST_FAILED], "token": token}  # fmt: skip
    os.write(report, json.dumps(found).encode())
    sys.stdout.flush()
    return 0 if whole and not checks.failed else 1


def child(job: dict[str, Any], report: int, skipped: set[int], token: str) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        faulthandler.enable()
        if not job["examples"] and not job["tests"]:
            os.execv(sys.executable, [sys.executable, "-X", "faulthandler", FILE])
        status = inside(job, report, skipped, token)
    finally:
        os._exit(status)


def wait(pid: int, limit_s: float) -> tuple[int, bool]:
    """Its status, and whether it had to be ended; first by a signal that makes it say where it is."""
    for signum, seconds in ((None, limit_s), (signal.SIGABRT, _LAST_WORDS_S), (signal.SIGKILL, None)):
        if signum is not None:
            os.kill(pid, signum)
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status, signum is not None
            left = 60.0 if end is None else end - time.monotonic()
            if left <= 0:
                break
            signal.sigtimedwait({signal.SIGCHLD}, left)
    return 0, True


def sweep() -> int:
    """Ends what the program left; how many that were. We are its subreaper: whoever loses its parent is our child."""
    count = 0
    for _ in range(1000):
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = file.read().split()
        if not children:
            break
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        for _ in children:
            os.waitpid(-1, 0)
        count += len(children)
    return count


def main(job_file: str, report_file: str, skipped: str = "") -> int:
    with open(job_file, encoding="utf-8") as file:
        job = json.load(file)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    part = f"{report_file}.part"
    report = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    token = os.urandom(16).hex()
    pid = os.fork()
    if not pid:
        child(job, report, {int(line) for line in skipped.split(",") if line}, token)
    status, timed_out = wait(pid, job["limit_s"])
    left = sweep()
    said = os.pread(report, 1 << 20, 0)
    os.unlink(part)
    try:
        found = json.loads(said) if said else {}
    except (ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict) or found.pop("token", None) != token:
        found = {}
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    exit_code = 124 if timed_out else code
    with open(report_file, "w", encoding="utf-8") as file:
        json.dump({**found, "exit_code": exit_code, "timed_out": timed_out, "left": left}, file)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
