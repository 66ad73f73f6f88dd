"""A run as an editor shows it: events in, updates of its session out. The same for one under way and one on record."""

import codecs
from collections.abc import Iterator
from functools import partial
from typing import Any

from acp.helpers import (
    plan_entry,
    start_tool_call,
    tool_diff_content,
    tool_terminal_ref,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import Cost, ToolCallLocation, ToolCallProgress, ToolCallStart, ToolCallUpdate, ToolKind, UsageUpdate

from stockade.acp.wording import Paths, fenced, words
from stockade.core.actions import (
    Action,
    Answer,
    AskUser,
    EditFile,
    Failed,
    FileWritten,
    Finish,
    InvalidCall,
    ReadFile,
    Refused,
    Shell,
    SubTask,
    ToolCall,
    ToolResult,
    Unknown,
    WriteFile,
)
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    ChangesApplied,
    ChangesDiscarded,
    ChangesUndone,
    CheckFinished,
    HistoryCompacted,
    MessageInjected,
    ModelAnswered,
    ModelStarted,
    NetworkRequested,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
)
from stockade.core.secrets import Redactor
from stockade.core.text import one_line
from stockade.loop.observe import clip, describe
from stockade_sandbox.results import CommandOutput, Stream

Update = Any
"""One of acp's session updates."""
_TITLE, _SHOWN, _TAIL = 200, 30_000, 8000
_KINDS: dict[type[Action], ToolKind] = {
    Shell: "execute", ReadFile: "read", WriteFile: "edit", EditFile: "edit", SubTask: "think",
}  # fmt: skip


class Story:
    """`terminal`: the editor draws output as that of a terminal. `replayed`: what the user said is shown too."""

    def __init__(self, paths: Paths, *, terminal: bool, replayed: bool = False) -> None:
        self.paths, self.replayed, self._terminal = paths, replayed, terminal
        self.running: tuple[str, Action] | None = None
        self._window = self._count = 0
        self._planned: tuple[str, ...] = ()
        self._streamed = self._over = False

    def of(self, event: RunEvent) -> Iterator[Update]:
        if isinstance(event, RunStarted | RunResumed):
            self._over = False
        match event:
            case RunStarted(task=str(task)) | RunResumed(task=str(task)) if self.replayed:
                yield update_user_message_text(task)
            case MessageInjected(source="user", text=text) if self.replayed:
                yield update_user_message_text(text)
            case ModelStarted():
                self._window = event.info.context_window or 0
            case ModelAnswered() if self._window:
                yield self._used(event)
            case AnswerUnderstood():
                yield from self._said(event.answer)
            case AnswerUnreadable():
                yield update_agent_thought_text(f"\n(no action could be read from the answer: {event.message})\n")
            case ActionStarted() if not isinstance(event.action.action, Finish):
                yield self._begun(f"{event.turn}.{event.step}", event.action.action)
            case ActionFinished():
                yield self._done(f"{event.turn}.{event.step}", event)
            case CheckFinished():
                yield self._checked(event)
            case NetworkRequested(verdict="refused"):
                title = f"not allowed to reach {event.host}:{event.port}"
                yield self._note(title, event.reason, kind="fetch", status="failed")
            case HistoryCompacted():
                yield update_agent_thought_text("\n(to make room, the model sees what was so far in short)\n")
            case RunFinished() if not self._over:  # it ends once more where its sandbox does
                self._over = True
                yield from self._ended(event)
            case ChangesApplied(paths=paths) if self.replayed:
                yield self._note(f"applied: {some(paths)}", "\n".join(paths), kind="edit")
            case ChangesUndone(paths=paths) if self.replayed:
                yield self._note(f"undone: {some(paths)}", "\n".join(paths), kind="edit")
            case ChangesDiscarded() if self.replayed:
                yield self._note("the changes were discarded", "\n".join(event.paths), kind="delete")
            case _:
                pass

    def new_id(self, name: str) -> str:
        self._count += 1
        return f"{name}-{self._count}"

    def streamed(self, text: str) -> Update:
        """A piece of an answer in plain words, as it comes."""
        self._streamed = True
        return update_agent_message_text(text)

    def _note(self, title: str, text: str, **how: Any) -> ToolCallStart:
        how = {"status": "completed", "content": [words(text)] if text else None, **how}
        return start_tool_call(self.new_id("note"), one_line(title, _TITLE), **how)

    def _used(self, event: ModelAnswered) -> UsageUpdate:
        usage = event.answer.usage
        cost = Cost(amount=usage.cost, currency="USD") if usage.cost else None
        used = usage.prompt_tokens + usage.completion_tokens
        return UsageUpdate(session_update="usage_update", used=used, size=self._window, cost=cost)

    def _said(self, answer: Answer) -> Iterator[Update]:
        thought, thoughts = answer.shown, answer.thoughts
        if self._streamed and answer.thought and not answer.spoken:
            yield update_agent_message_text("\n\n")
        elif thought and not answer.spoken:
            yield update_agent_thought_text(f"{thought}\n\n")
        if not answer.spoken:
            self._streamed = False
        if thoughts is not None:
            if text := "\n".join(filter(None, (thoughts.text, thoughts.reasoning, thoughts.criticism))):
                yield update_agent_thought_text(f"{text}\n\n")
            if thoughts.speak:
                yield update_agent_message_text(f"{thoughts.speak}\n\n")
            if thoughts.plan:
                self._planned = thoughts.plan
                yield update_plan(plan_entry(one_line(line, 1000)) for line in thoughts.plan)

    def _ended(self, event: RunFinished) -> Iterator[Update]:
        if self._planned and event.status == "done":
            yield update_plan(plan_entry(one_line(line, 1000), status="completed") for line in self._planned)
            self._planned = ()
        if event.answer and not self._streamed:
            yield update_agent_message_text(event.answer)
        self._streamed = False
        if event.status != "done" and event.reason != "user":
            yield update_agent_message_text(f"\n\n{event.status} ({event.reason}): {event.detail}".rstrip(": "))

    # Actions

    def call(self, action: Action) -> dict[str, Any]:
        """Title, kind, place and input of an action, as a tool call has them."""
        kind: ToolKind = _KINDS.get(type(action), "other")
        path = action.path if isinstance(action, ReadFile | WriteFile | EditFile) else None
        host = self.paths.host(path) if path is not None else None
        line = action.start if isinstance(action, ReadFile) else None
        match action:
            case Shell(command=command):
                title = command
            case ToolCall(name=name):
                title = name
            case AskUser(question=question):
                title = question
            case SubTask(task=task):
                title = f"hands on: {task}"
            case InvalidCall():
                title = f"a call that is none: {action.name}"
            case _:
                title = f"{action.tool.partition('_')[0]} {path}"
        return {
            "title": one_line(title, _TITLE),
            "kind": kind,
            "locations": [ToolCallLocation(path=host, line=line)] if host else None,
            "raw_input": action.model_dump(mode="json", exclude={"tool"}, exclude_none=True),
        }

    def shown(self, action: Action) -> list[Any]:
        """What of an action is shown whole: before it is done, and to whom is asked about it."""
        match action:
            case Shell(command=command):
                return [words(fenced(command, "bash"))]
            case EditFile(path=path, old=old, new=new):
                return [tool_diff_content(self.paths.host(path) or path, new, old)]
            case WriteFile(content=content):
                return [words(fenced(clip(content, _SHOWN)))]
            case _:
                return []

    def _begun(self, number: str, action: Action) -> ToolCallStart:
        self.running = number, action
        content: list[Any] = self.shown(action)
        meta = None
        if isinstance(action, Shell) and self._terminal:
            content, meta = [tool_terminal_ref(number)], {"terminal_info": {"terminal_id": number}}
        started = start_tool_call(number, status="in_progress", content=content, **self.call(action))
        return started.model_copy(update={"field_meta": meta}) if meta else started

    def output(self, text: str, so_far: str) -> Update | None:
        """`text` is what the command that runs has written since, `so_far` the tail of all that it wrote."""
        if self.running is None:
            return None
        number, action = self.running
        if not self._terminal:
            return update_tool_call(number, content=[*self.shown(action), words(fenced(so_far))])
        meta = {"terminal_output": {"terminal_id": number, "data": text}}
        return update_tool_call(number).model_copy(update={"field_meta": meta})

    def _done(self, number: str, event: ActionFinished) -> ToolCallProgress:
        action = self.running[1] if self.running is not None and self.running[0] == number else None
        self.running = None
        observation = event.observation
        bad = isinstance(observation, Refused | Failed | Unknown)
        bad = bad or (isinstance(observation, ToolResult) and observation.status == "error")
        text = describe(observation, _SHOWN)
        content: list[Any] = self.shown(action) if action is not None else []
        if isinstance(action, WriteFile) and isinstance(observation, FileWritten) and observation.size_before is None:
            content = [tool_diff_content(self.paths.host(action.path) or action.path, action.content, "")]
        content.append(words(fenced(text)))
        meta = None
        if isinstance(observation, CommandOutput) and self._terminal:
            exited = {"terminal_id": number, "exit_code": observation.exit_code, "signal": None}
            content, meta = [tool_terminal_ref(number)], {"terminal_exit": exited}
            if self.replayed:
                shown = clip(observation.output.decode(errors="backslashreplace"), _SHOWN)
                meta["terminal_output"] = {"terminal_id": number, "data": shown}
        done = update_tool_call(
            number, status="failed" if bad else "completed", content=content, raw_output={"output": text}
        )
        return done.model_copy(update={"field_meta": meta}) if meta else done

    def _checked(self, event: CheckFinished) -> ToolCallStart:
        title = f"check {'passed' if event.passed else 'failed'}: {event.command}"
        text = fenced(describe(event.observation, _SHOWN))
        return self._note(title, text, kind="execute", status="completed" if event.passed else "failed")

    def question(self, action: Action, why: str = "") -> ToolCallUpdate:
        """The call that the user is asked about: the one that waits, or one of a bot that works for this one."""
        waits = self.running is not None and self.running[1] == action
        number = self.running[0] if waits and self.running is not None else self.new_id("ask")
        content = [*self.shown(action), *([words(why)] if why else [])]
        return ToolCallUpdate(tool_call_id=number, status="pending", content=content, **self.call(action))


def some(paths: tuple[str, ...] | list[str]) -> str:
    return f"{len(paths)} {'change' if len(paths) == 1 else 'changes'}"


class Live:
    """What the shell's command writes, as it comes: whole characters, without secrets, some of it kept."""

    def __init__(self, redactor: Redactor) -> None:
        self._made = partial(_Decoded, redactor, self._take)
        self._open: dict[Stream, _Decoded] = {}
        self._new = self._tail = ""

    def output(self, stream: Stream, data: bytes) -> None:
        if stream not in self._open:
            self._open[stream] = self._made()
        self._open[stream].add(data)

    def _take(self, text: str | None) -> None:
        self._new = clipped(self._new + (text or ""))
        self._tail = clipped(self._tail + (text or ""))

    def taken(self) -> tuple[str, str] | None:
        """What is new, and the tail of all; None for nothing."""
        if not self._new:
            return None
        new, self._new = self._new, ""
        return new, self._tail

    def end(self) -> None:
        """The command is over: what could have become a secret is none."""
        for one in self._open.values():
            one.end()

    def clear(self) -> None:
        self._open.clear()
        self._new = self._tail = ""


def clipped(text: str) -> str:
    """Its tail, where it is long."""
    if len(text) <= 2 * _TAIL:
        return text
    return f"[... more came before ...]\n{text[-_TAIL:]}"


class _Decoded:
    def __init__(self, redactor: Redactor, take: Any) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
        self._hidden = redactor.stream(take)

    def add(self, data: bytes) -> None:
        self._hidden(self._decoder.decode(data))

    def end(self) -> None:
        self._hidden(self._decoder.decode(b"", True))
        self._hidden.flush()
