"""Events to a bounded request whose prefix never changes.

Messages are only ever appended, so the request of turn n+1 starts with every byte of turn n and the server's KV cache
is used. The one exception is folding: when the window is nearly full, old observations shrink to a line each. That is
an event (HistoryFolded) of its own, rare, and costs one re-read of the prompt.
"""

from dataclasses import dataclass, field

from stockade.core.actions import Answer, Step
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    CheckFinished,
    HistoryFolded,
    ModelAnswered,
    Nudged,
    RunEvent,
    RunStarted,
)
from stockade.core.messages import Message
from stockade.core.ports import AnswerProtocol
from stockade.loop.observe import describe

CHARS_PER_TOKEN = 3
KEPT_WHOLE_TURNS = 4
_FOLDED_CHARS = 120


@dataclass(slots=True)
class _Entry:
    """A message, and the turn of the observation in it when it can be folded."""

    message: Message
    turn: int | None = None


@dataclass(slots=True)
class Context:
    """The conversation as the model sees it. `window` in tokens, None when unknown."""

    protocol: AnswerProtocol
    window: int | None = None
    answer_tokens: int = 1024
    entries: list[_Entry] = field(default_factory=list)
    correction: str | None = None
    _step: Step | None = None
    _known_tokens: int = 0
    _counted: int = 0

    @property
    def observation_chars(self) -> int:
        """How much of one observation is shown: an eighth of the window, at most 16,000 characters."""
        return 16_000 if self.window is None else max(600, min(16_000, self.window * CHARS_PER_TOKEN // 8))

    def apply(self, event: RunEvent) -> None:
        """Take one event in, in order."""
        match event:
            case RunStarted():
                task_chars = 64_000 if self.window is None else self.window * CHARS_PER_TOKEN // 3
                self._add("system", event.system_prompt)
                self._add("user", _clip_task(event.task, task_chars))
            case ModelAnswered():
                usage = event.answer.usage
                self._known_tokens, self._counted = usage.prompt_tokens, len(self.entries)
            case AnswerUnderstood():
                self.correction = None
                self._write(event.answer)
            case AnswerUnreadable():
                self.correction = event.message if event.attempt > 1 else None
            case ActionStarted():
                self._step = event.action
            case ActionFinished() if self._step is not None:
                text = describe(event.observation, self.observation_chars)
                self.entries.append(_Entry(self.protocol.observed(self._step, text), event.turn))
            case CheckFinished() if not event.passed:
                text = describe(event.observation, self.observation_chars)
                self._add("user", f"The check `{event.command}` does not pass yet:\n{text}")
            case Nudged():
                self._add("user", event.text)
            case HistoryFolded():
                self._fold(event.before_turn)
            case _:
                pass

    def messages(self) -> tuple[Message, ...]:
        """What is sent next. A correction of an unreadable answer goes last and leaves no trace afterwards."""
        sent = [entry.message for entry in self.entries]
        if self.correction is not None:
            sent.append(Message(role="user", content=self.correction))
        return tuple(merged(sent))

    def tokens(self) -> int:
        """Of the next request: exact up to the last answer, estimated from there."""
        fresh = sum(len(entry.message.content) for entry in self.entries[self._counted :])
        return self._known_tokens + fresh // CHARS_PER_TOKEN

    def must_fold(self, turn: int) -> int | None:
        """The turn before which observations should be folded, or None when there is room."""
        if self.window is None or self.tokens() + self.answer_tokens < self.window * 0.9:
            return None
        return self.foldable_before(turn)

    def foldable_before(self, turn: int) -> int | None:
        """The turn before which something can be folded; the last turns are kept whole while others can go."""
        foldable = sorted({entry.turn for entry in self.entries if entry.turn is not None})
        if not foldable:
            return None
        before = max(turn - KEPT_WHOLE_TURNS, foldable[0] + 1)
        return min(before, foldable[-1] + 1)

    def _add(self, role: str, content: str) -> None:
        self.entries.append(_Entry(Message(role="system" if role == "system" else "user", content=content)))

    def _write(self, answer: Answer) -> None:
        self.entries.append(_Entry(self.protocol.write(answer)))

    def _fold(self, before_turn: int) -> None:
        for entry in self.entries:
            if entry.turn is not None and entry.turn < before_turn:
                line = entry.message.content.strip().replace("\n", " | ")
                text = line if len(line) <= _FOLDED_CHARS else f"{line[:_FOLDED_CHARS]} [... shortened]"
                entry.message = entry.message.model_copy(update={"content": text})
                entry.turn = None
        self._known_tokens, self._counted = 0, 0


def merged(messages: list[Message]) -> list[Message]:
    """Adjacent user messages joined: many templates want roles to alternate."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if last is not None and last.role == message.role == "user":
            result[-1] = Message(role="user", content=f"{last.content}\n\n{message.content}")
        else:
            result.append(message)
    return result


def _clip_task(task: str, limit: int) -> str:
    if len(task) <= limit:
        return task
    return f"{task[:limit]}\n[the task was longer than fits the model: {len(task) - limit} characters left out]"
