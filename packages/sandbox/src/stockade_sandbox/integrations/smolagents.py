"""A sandbox in which smolagents' CodeAgent runs its Python: `CodeAgent(executor=StockadeExecutor(box), ...)`, with an
open `stockade_sandbox.Sandbox`.
"""

import ast
import json
from contextlib import ExitStack, suppress
from threading import Event, Timer
from typing import Any

from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.serialization import SerializationError
from smolagents.tools import Tool, get_tools_definition_code
from smolagents.utils import AgentError

from stockade_sandbox import Program, Sandbox
from stockade_sandbox.errors import SandboxDied

DEFAULT_TIMEOUT_S = 60.0
MAX_ANSWER = 16 << 20
_INSIDE = """
import ast, json, os, sys, tempfile, traceback
asked, answers, logs = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"), tempfile.TemporaryFile()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(logs.fileno(), 1)
os.dup2(logs.fileno(), 2)
space = {"__name__": "__main__"}
for line in asked:
    logs.seek(0)
    logs.truncate()
    answer = {"value": None, "error": None}
    try:
        tree = ast.parse(json.loads(line))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space)
            answer["value"] = None if value is None else repr(value)
    except BaseException as error:
        answer["error"] = [type(error).__name__, str(error), traceback.format_exc()]
    sys.stdout.flush()
    sys.stderr.flush()
    logs.seek(0)
    answer["logs"] = logs.read(1 << 20).decode(errors="replace")
    answers.write(json.dumps(answer).encode() + b"\\n")
    answers.flush()
"""


class StockadeExecutor(RemotePythonExecutor):  # type: ignore[misc, unused-ignore]
    """A Python that keeps its variables from call to call, and is begun anew, with the tools and variables that the
    agent was given, when it ended or took longer than `timeout` seconds.

    `box` stays its maker's. Tools and `final_answer` run inside: what they import must be there; nothing is installed.
    AgentError for what the code raised.
    """

    def __init__(
        self, box: Sandbox, *, timeout: float = DEFAULT_TIMEOUT_S, python: str = "python3", logger: Any = None
    ) -> None:
        super().__init__([], logger or AgentLogger(level=LogLevel.ERROR))
        self._box, self._timeout, self._python = box, timeout, python
        self._given: list[str] = []
        self._patched: Tool | None = None
        self._program: Program | None = None
        self._stack = ExitStack()

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """What the definitions import at their top may be missing (numpy and PIL are named in each): what is used says
        so itself.
        """
        final = tools.get("final_answer")
        if final is not None and final is not self._patched:  # each run of an agent sends its tools
            self._patch_final_answer_with_exception(final)
            self._patched = final
        tree = ast.parse(get_tools_definition_code(tools))
        missing = ast.ExceptHandler(type=ast.Name("ImportError", ast.Load()), name=None, body=[ast.Pass()])
        tree.body = [
            ast.Try(body=[one], handlers=[missing], orelse=[], finalbody=[]) if isinstance(one, ast.Import) else one
            for one in tree.body
        ]
        self.run_code_raise_errors(ast.unparse(ast.fix_missing_locations(tree)))

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """What the agent is given: kept for a fresh start."""
        done = self(code)
        if code not in self._given:
            self._given.append(code)
        return done

    def __call__(self, code_action: str) -> CodeOutput:
        if self._program is None:
            self._program = self._stack.enter_context(self._box.start([self._python, "-u", "-c", _INSIDE]))
            for given in self._given:
                self._done(self._program, given)
        return self._done(self._program, code_action)

    def cleanup(self) -> None:
        """Ends its Python; the sandbox goes on."""
        self._program = None
        self._stack.close()

    def _done(self, program: Program, code: str) -> CodeOutput:
        said = self._asked(program, code)
        try:
            answer = json.loads(said)
            value, error, logs = answer["value"], answer["error"], str(answer["logs"])
            if error is None:
                return CodeOutput(output=value, logs=logs, is_final_answer=False)
            name, words, trace = map(str, error)
            if name == self.FINAL_ANSWER_EXCEPTION:
                final = self._deserialize_final_answer(words, self.allow_pickle)
                return CodeOutput(output=final, logs=logs, is_final_answer=True)
        except (ValueError, KeyError, TypeError, RecursionError, SerializationError) as wrong:
            self.cleanup()
            raise AgentError(f"What came back is no answer ({wrong}). Python was begun anew.", self.logger) from None
        raise AgentError(f"{logs}\n{name}: {words}\n{trace}", self.logger)

    def _asked(self, program: Program, code: str) -> bytes:
        """A line for a line."""
        late, said = Event(), bytearray()

        def stop() -> None:
            late.set()
            with suppress(SandboxDied):
                program.kill()

        timer = Timer(self._timeout, stop)
        timer.start()
        try:
            with suppress(BrokenPipeError):
                program.write(json.dumps(code).encode() + b"\n")
            while not said.endswith(b"\n") and len(said) < MAX_ANSWER and (piece := program.read()):
                said += piece
        finally:
            timer.cancel()
        if said.endswith(b"\n"):
            return bytes(said)
        self.cleanup()
        why = f"took longer than {self._timeout:g} s" if late.is_set() else "ended, or answered without an end"
        raise AgentError(f"Python {why}, and was begun anew: its variables are gone.", self.logger)
