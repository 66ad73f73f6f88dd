"""In-memory adapters of the ports, for tests without a model, a sandbox or a disk."""

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from pydantic import ValidationError

from stockade.core.actions import Action, Answer, Step, ToolResult
from stockade.core.errors import ModelUnavailable, RunRemoved, RunTaken, StockadeError, UnreadableAnswer, UsageError
from stockade.core.events import ModelAnswered, RunEvent, RunFinished, RunStarted, from_json, said_of, to_json
from stockade.core.messages import Message, ModelAnswer, ModelInfo, ModelRequest, Usage
from stockade.core.ports import ExecResult, OnNetwork, OnText
from stockade.core.summary import RunSummary, never_began
from stockade.core.tools import Offered, ToolSpec
from stockade.loop.verdict import argv_of
from stockade_sandbox.results import Chunk, CommandOutput, FolderLayer


def say(tool: str, thought: str = "", **arguments: Any) -> str:
    """An answer in the JSON protocol: `say("shell", command="ls")`."""
    return json.dumps({"thought": thought, "action": {"tool": tool, **arguments}})


def steps(*actions: Action) -> str:
    """An answer in StepAnswers: `steps(Shell(command="ls"))`."""
    return Answer(steps=tuple(Step(action=action) for action in actions)).model_dump_json()


class StepAnswers:
    """Implements core.ports.AnswerProtocol: an answer is the JSON of an Answer. For parts that care for no spelling."""

    name = "steps"

    def instructions(self, tools: Sequence[Offered]) -> str:
        return ""

    def listing(self, tools: Sequence[Offered]) -> str:
        return ""

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request

    def read(self, answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
        try:
            return Answer.model_validate_json(answer.content)
        except ValidationError as error:
            raise UnreadableAnswer(f"this is no Answer: {error.error_count()} fields are wrong") from None

    def write(self, answer: Answer) -> Message:
        return Message(role="assistant", content=answer.model_dump_json())

    def observed(self, step: Step, text: str) -> Message:
        return Message(role="user", content=text)


class ScriptedModel:
    """Answers from a list, in order. An exception in the list is raised. Requests are kept in `requests`."""

    def __init__(self, answers: Iterable[str | ModelAnswer | StockadeError], window: int | None = None) -> None:
        self._answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.info = ModelInfo(name="script", provider="scripted", context_window=window)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        self.requests.append(request)
        if not self._answers:
            raise ModelUnavailable("the script has no more answers")
        answer = self._answers.pop(0)
        if isinstance(answer, StockadeError):
            raise answer
        if isinstance(answer, ModelAnswer):
            return answer
        if on_text is not None:
            on_text(answer)
        prompt = sum(len(message.content) for message in request.messages) // 4
        return ModelAnswer(content=answer, usage=Usage(prompt_tokens=prompt, completion_tokens=len(answer) // 4))


class MemorySandbox:
    """A sandbox with canned commands and a dictionary of files. `commands` maps a command to what it gives."""

    backend = "memory"
    guarantees: tuple[str, ...] = ()

    def __init__(
        self,
        commands: dict[str, str | int | CommandOutput | StockadeError] | None = None,
        on_command: Callable[[str], CommandOutput] | None = None,
        layers: tuple[FolderLayer, ...] = (),
    ) -> None:
        self.commands = commands or {}
        self.on_command = on_command
        self.layers = layers
        self.ran: list[str] = []
        self.files: dict[str, bytes] = {}
        self.entered = self.left = 0
        self.on_network: OnNetwork | None = None

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left += 1

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        self.ran.append(command)
        if self.on_command is not None:
            return self.on_command(command)
        result = self.commands.get(command, 0)
        if isinstance(result, StockadeError):
            raise result
        if isinstance(result, CommandOutput):
            return result
        if isinstance(result, int):
            return CommandOutput(exit_code=result, cwd="/workspace")
        return CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", result.encode()),), cwd="/workspace")

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        """Knows what the loop does with files: `sh -c SCRIPT sh PATH ...`, see loop/file_actions.py.

        A check is done as a command.
        """
        if list(argv) == argv_of(argv[-1]):
            output = await self.run(argv[-1])
            return ExecResult(exit_code=output.exit_code, stdout=output.output, stderr=b"")
        script, path = (argv[2], argv[4]) if argv[0] == "sh" and len(argv) > 4 else ("", argv[-1])
        held = self.files.get(path)
        counts = b"" if held is None else b"%d %d %d\n" % (held.count(b"\n"), len(held), held.endswith(b"\n"))
        if "mkdir -p" in script:
            self.files[path] = stdin
            return ExecResult(exit_code=0, stdout=(counts + (held or b""))[:max_output_bytes], stderr=b"")
        if held is None:
            return ExecResult(exit_code=44, stdout=b"", stderr=b"")
        if "tail -n" in script:
            first, count = int(argv[5]), int(argv[6])
            held = counts + b"".join(held.splitlines(keepends=True)[first - 1 : first - 1 + count])
        return ExecResult(exit_code=0, stdout=held[:max_output_bytes], stderr=b"")


class MemoryStore:
    """A record that is gone with the process. Events make the same way through JSON as on disk."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._driven: set[str] = set()
        self._removed: dict[str, float] = {}

    @asynccontextmanager
    async def driving(self, run_id: str) -> AsyncIterator[None]:
        if run_id in self._driven:
            raise RunTaken(f"run {run_id} is being driven by this process", "wait for its end")
        self._driven.add(run_id)
        try:
            yield
        finally:
            self._driven.discard(run_id)

    async def driver(self, run_id: str) -> str | None:
        return "this process" if run_id in self._driven else None

    async def append(self, run_id: str, events: Sequence[RunEvent], *, durable: bool = True) -> None:
        if run_id in self._removed:
            raise self._no_run(run_id)
        self._lines.setdefault(run_id, []).extend(to_json(event) for event in events)

    async def events(self, run_id: str, *, first: int = 0, limit: int | None = None) -> list[RunEvent]:
        if run_id not in self._lines:
            raise self._no_run(run_id)
        end = None if limit is None else first + limit
        return [from_json(line) for line in self._lines[run_id][first:end]]

    async def remove(self, run_id: str) -> None:
        names = [run_id, *(name for name in self._lines if name.startswith(f"{run_id}."))]
        for name in names:
            self._lines.pop(name, None)
            self._removed.setdefault(name, time.time())

    async def removed(self) -> dict[str, float]:
        return dict(self._removed)

    async def sweep(self) -> None:
        return None

    def _no_run(self, reference: str) -> UsageError:
        if gone := next((name for name in self._removed if reference and name.startswith(reference)), None):
            return RunRemoved(f"run {gone} was removed")
        return UsageError(f"there is no run {reference!r}", "stockade runs list")

    async def length(self, run_id: str) -> int:
        return len(self._lines.get(run_id, ()))

    async def find(self, reference: str) -> str:
        names = list(self._lines)
        if reference == "last" and names:
            runs = await self.runs()
            return next(run.run_id for run in runs if "." not in run.run_id and not never_began(run.status, run.turns))
        matches = [name for name in names if name.startswith(reference)] if reference else []
        matches = [name for name in matches if "." not in name] or matches
        if reference in names:
            return reference
        if not matches:
            raise self._no_run(reference)
        if len(matches) > 1:
            raise UsageError(f"{reference!r} is the beginning of several")
        return matches[0]

    async def runs(
        self, *, folder: str | None = None, words: Sequence[str] = (), limit: int | None = None
    ) -> list[RunSummary]:
        every = [_summary([from_json(line) for line in lines]) for lines in reversed(self._lines.values())]
        inside = f"{folder}/".replace("//", "/")
        here = [run for run in every if folder is None or (run.folder and f"{run.folder}/".startswith(inside))]
        said = {run.run_id: [text for _, text in self._said(run.run_id)] for run in here}
        return [run for run in here if all(any(_holds(text, word) for text in said[run.run_id]) for word in words)][
            :limit
        ]

    async def said(self, run_id: str, words: Sequence[str]) -> list[tuple[str, str]]:
        return [(kind, text) for kind, text in self._said(run_id) if not words or any(_holds(text, w) for w in words)]

    def _said(self, run_id: str) -> list[tuple[str, str]]:
        found = (said_of(from_json(line)) for line in self._lines.get(run_id, ()))
        return [(said[0], said[1].replace("\0", "\ufffd")) for said in found if said]

    async def close(self) -> None:
        return None


_WORD = re.compile(r"[^\W_]+")


def _holds(text: str, words: str) -> bool:
    """Side by side, the last perhaps only begun; whatever is no letter or digit parts words."""
    wanted, found = (" ".join(["", *_WORD.findall(one.lower())]) for one in (words, text))
    return wanted != "" and wanted in found


def _summary(events: list[RunEvent]) -> RunSummary:
    first = events[0]
    if not isinstance(first, RunStarted):
        raise UsageError("the record does not begin with run_started")
    last = events[-1]
    return RunSummary(
        run_id=first.run_id,
        started=first.at,
        task=first.task,
        bot=first.bot,
        model=first.model,
        folder=first.policy.folder.host if first.policy.folder is not None else "",
        status=last.status if isinstance(last, RunFinished) else "running",
        turns=max((event.turn for event in events if isinstance(event, ModelAnswered)), default=0),
        verified=last.verified if isinstance(last, RunFinished) else None,
    )


class FixedClock:
    """Time moves by `step` at each look."""

    def __init__(self, start: float = 1_000_000.0, step: float = 0.0) -> None:
        self._now = start
        self._step = step

    def now(self) -> float:
        self._now += self._step
        return self._now

    def monotonic(self) -> float:
        return self.now()


class MemoryToolbox:
    """Implements core.ports.Toolbox: each tool is a function of its arguments. `calls` is what was asked of it."""

    def __init__(self, *tools: tuple[ToolSpec, Callable[[Mapping[str, Any]], str]]) -> None:
        self._tools = {spec.name: (spec, work) for spec, work in tools}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.entered = self.left = 0

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec, _ in self._tools.values())

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left += 1

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        spec, work = self._tools[name]
        self.calls.append((name, dict(arguments)))
        missing = [requested for requested in spec.required if requested not in arguments]
        if missing:
            return ToolResult(status="error", text=f"missing: {', '.join(missing)}")
        return ToolResult(status="success", text=work(arguments))
