"""Events to a bounded request whose prefix never changes.

Messages are only ever appended, so the request of turn n+1 starts with every byte of turn n and the server's KV cache
is used: what was sent is sealed, and what comes later is a message of its own. The one exception is folding: when the
window is nearly full, old observations shrink to a line each. That is an event (HistoryCompacted) of its own, rare, and
costs one re-read of the prompt. What the user said is never folded.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from stockade.core.actions import Answer, Answered, AskUser, Refused, Step, ToolResult
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    CheckFinished,
    Checkpoint,
    HistoryCompacted,
    MessageInjected,
    ModelAnswered,
    ModelStarted,
    RunEvent,
    RunResumed,
    RunStarted,
    SelfConfigChanged,
    ToolsReady,
)
from stockade.core.messages import Image, Message, ModelAnswer, Reasoning, Role, joined
from stockade.core.ports import AnswerProtocol
from stockade.core.text import under
from stockade.core.tools import ToolSpec
from stockade.loop.observe import changed, describe, whole_prompt

CHARS_PER_TOKEN = 3
KEPT_WHOLE_TURNS = 3
IMAGE_TOKENS = 1600
"""What a large picture costs at most providers; the first answer tells it exactly."""
ASSUMED_WINDOW = 8192
_FULL_SHARE, _FOLDED_SHARE, _KEPT_SHARE = 0.95, 0.4, 0.25
_FOLDED_CHARS = 120
# What a token can be of: digits and foreign scripts at one end, long words at the other.
_FEWEST_BYTES, _MOST_BYTES = 1.0, 6.0
_WINDOW_EDGE = 16
_WHERE = {True: ", in a fresh sandbox with the files of your folder", False: ""}
"""Said of a check that failed, which was run apart."""


@dataclass(slots=True)
class _Entry:
    """A message. `turn` is None for what always stays; `foldable` for an observation still shown whole; `own` for what
    the bot was told of its own rules, which folding says again as they are then; `user` for what the user said, which
    stays whole, and `about` what they said that to, for when the call is gone.
    """

    message: Message
    turn: int | None = None
    foldable: bool = False
    own: bool = False
    user: bool = False
    about: str = ""


@dataclass(slots=True)
class Context:
    """The conversation as the model sees it. `window` in tokens, None when unknown.

    Tokens are known exactly up to the last answer, which told them; what came since is estimated by what a token of
    this conversation has been so far.
    """

    protocol: AnswerProtocol
    window: int | None = None
    answer_tokens: int = 1024
    entries: list[_Entry] = field(default_factory=list)
    _task: str = ""
    _own: SelfConfigChanged | None = None
    _opening: str = ""
    _step: Step | None = None
    _reasoning: Reasoning | None = None
    _bytes: int = 0
    _known_tokens: int = 0
    _known_bytes: int = 0
    _ratio: float = CHARS_PER_TOKEN
    _cut_by_window: bool = False
    _window_known: bool = False
    _folded: tuple[int, int] = (0, 0)
    _sent: list[Message] = field(default_factory=list)
    _joined: int = 0
    _sealed: set[int] = field(default_factory=set)
    _sees: bool | None = None
    _pictures: list[tuple[int, tuple[Image, ...]]] = field(default_factory=list)

    @property
    def images(self) -> int:
        """How many are in it."""
        return sum(len(entry.message.images) for entry in self.entries)

    @property
    def observation_chars(self) -> int:
        """How much of one observation is shown: a twelfth of the window, at most 16,000 characters."""
        return 16_000 if self.window is None else max(600, min(16_000, self.window * CHARS_PER_TOKEN // 12))

    def apply(self, event: RunEvent) -> None:
        """Take one event in, in order. The cases that every turn has come first: a long run is read back by this."""
        match event:
            case ActionFinished() if self._step is not None:
                self._observe(self._step, event)
            case ActionStarted():
                self._step = event.action
            case ModelAnswered():
                self._show_pictures()
                self._sealed.add(len(self.entries))
                self._told(event.answer)
            case AnswerUnderstood():
                self._append(_Entry(self._written(event.answer), event.turn))
            case Checkpoint():
                pass
            case RunStarted():
                self.answer_tokens = event.sampling.max_tokens or self.answer_tokens
                self._opening = event.system_prompt
                self._add("system", event.system_prompt)
                self._append(_Entry(Message(role="user", content=event.task, images=event.images)))
                self._task = event.task
            case RunResumed() if event.task is not None:
                new = Message(role="user", content=_next_task(event), images=event.images)
                self._append(_Entry(new))
            case ToolsReady():
                self._list_tools(event.tools)
            case ModelStarted():
                self._know_window(event.info.context_window)
                self._sees = event.info.sees
            case AnswerUnreadable():
                self._add("user", f"Your answer could not be read: {event.message}", event.turn)
            case CheckFinished() if not event.passed:
                text = describe(event.observation, self.observation_chars)
                words = f"The check `{event.command}` does not pass yet{_WHERE[event.apart]}"
                self._add("user", f"{words}:\n{text}", event.turn)
            case MessageInjected():
                self._add("user", event.text, event.turn, user=event.source == "user")
            case SelfConfigChanged():
                if words := changed(event, self._own, self._task):
                    self._append(_Entry(Message(role="user", content=words), event.turn, own=True))
                self._own = event
            case HistoryCompacted():
                self._show_pictures()
                self.window = event.window or self.window
                self._fold(event.before_turn, event.summary)
                if event.task_left_out:
                    self._clip_task()
                self._folded = (event.turn, event.before_turn)
            case _:
                pass

    def _observe(self, step: Step, event: ActionFinished) -> None:
        text = "\n".join(
            [
                describe(event.observation, self.observation_chars),
                *(f"[{words.hook}] {words.text}" for words in event.words),
            ]
        )
        by_user = isinstance(event.observation, Answered) or (
            isinstance(event.observation, Refused) and event.observation.by == "user"
        )
        message = self.protocol.observed(step, text)
        about = _about(step) if by_user else ""
        self._append(_Entry(message, event.turn, foldable=not by_user, user=by_user, about=about))
        if isinstance(event.observation, ToolResult) and event.observation.images:
            self._pictures.append((event.turn, event.observation.images))

    def messages(self) -> tuple[Message, ...]:
        """What is sent next. Neighbours of the user's are joined where neither was sent before.

        Those of the last call are the same objects again: turn 200 costs what turn 1 costs.
        """
        self._show_pictures()
        for index in range(self._joined, len(self.entries)):
            message = self.entries[index].message
            last = self._sent[-1] if self._sent and index not in self._sealed else None
            if last is not None and last.role == message.role == "user":
                self._sent[-1] = joined(last, message)
            else:
                self._sent.append(message)
        self._joined = len(self.entries)
        return tuple(self._sent)

    def tokens(self) -> int:
        """Of the next request: exact up to the last answer, estimated from there."""
        self._show_pictures()
        return self._known_tokens + round((self._bytes - self._known_bytes) / self._ratio)

    def counted(self, tokens: int) -> None:
        """The server has counted the next request."""
        self._known_tokens, self._known_bytes = tokens, self._bytes

    def is_full(self) -> bool:
        """Whether the next request and its answer might not fit."""
        return self.window is not None and (self._cut_by_window or self.tokens() >= self._limit())

    def in_doubt(self) -> bool:
        """Whether the estimate decides, so that an exact count is worth asking for."""
        fresh = self._bytes - self._known_bytes
        if self.window is None or self._cut_by_window or not fresh:
            return False
        least, most = (self._known_tokens + fresh / each for each in (_MOST_BYTES, _FEWEST_BYTES))
        return least < self._limit() <= most

    def smallest(self) -> int:
        """About how many tokens are left when everything that can be shortened is: the instructions and the task."""
        kept = (entry for entry in self.entries if entry.turn is None or entry.user)
        return round(sum(_size(entry.message) for entry in kept) / self._ratio)

    def _limit(self) -> int:
        window = self.window or ASSUMED_WINDOW
        return int(window * _FULL_SHARE) - min(self.answer_tokens, window // 4)

    def foldable_before(self, turn: int) -> int | None:
        """The turn before which something can be shortened, None when nothing can any more.

        The last turns are kept whole while others can go: as many as a quarter of the window holds. When that was not
        enough, the next call gives a later turn.
        """
        turns = sorted({entry.turn for entry in self.entries if entry.turn is not None and not entry.user})
        if not turns:
            return None
        folded_at, folded_before = self._folded
        for kept in range(self._kept_whole(turns), -1, -1):
            before = min(max(turn - kept, turns[0] + 1), turns[-1] + 1)
            if folded_at != turn or before > folded_before:
                return before
        return None

    def _kept_whole(self, turns: list[int]) -> int:
        room = (self.window or ASSUMED_WINDOW) * _KEPT_SHARE * self._ratio
        for kept, turn in enumerate(reversed(turns[-KEPT_WHOLE_TURNS:])):
            room -= sum(_size(entry.message) for entry in self.entries if entry.turn == turn)
            if room < 0:
                return max(1, kept)
        return KEPT_WHOLE_TURNS

    def _written(self, answer: Answer) -> Message:
        """As the protocol spells it, with what its provider wants back."""
        message = self.protocol.write(answer)
        return message.model_copy(update={"reasoning": self._reasoning}) if self._reasoning else message

    def _told(self, answer: ModelAnswer) -> None:
        """The server says how many tokens the prompt had: of which length a token is, is known from there. Thinking
        that goes back is counted by its tokens, as what is sent of it tells nothing of its length.
        """
        usage, reasoning = answer.usage, answer.reasoning
        self._reasoning = None if reasoning is None or reasoning.changed else reasoning
        self._cut_by_window = (
            answer.finish_reason == "length"
            and self.window is not None
            and usage.prompt_tokens + usage.completion_tokens >= self.window - _WINDOW_EDGE
        )
        if usage.prompt_tokens:
            self.counted(usage.prompt_tokens)
            self._ratio = max(_FEWEST_BYTES, min(_MOST_BYTES, self._bytes / usage.prompt_tokens))
            self._known_tokens += usage.thinking_tokens if self._reasoning else 0

    def _add(self, role: Role, content: str, turn: int | None = None, *, user: bool = False) -> None:
        self._append(_Entry(Message(role=role, content=content), turn, user=user))

    def _show_pictures(self) -> None:
        """Those of results, behind all results of their turn, as providers want it."""
        waiting, self._pictures = self._pictures, []
        for turn, images in waiting:
            names = ", ".join(image.name for image in images)
            words = f"You do not see pictures: {names}" if self._sees is False else f"What a tool gave: {names}"
            shown = () if self._sees is False else images
            self._append(_Entry(Message(role="user", content=words, images=shown), turn, foldable=True))

    def _append(self, entry: _Entry) -> None:
        if entry.message.role != "tool":
            self._show_pictures()
        self.entries.append(entry)
        self._bytes += _size(entry.message)

    def _know_window(self, window: int | None) -> None:
        """A run that goes on in the same window goes on from the same bytes."""
        same, self.window = self._window_known and window == self.window, window
        self._window_known = True
        if not same:
            self._clip_task()

    def _list_tools(self, tools: Sequence[ToolSpec]) -> None:
        """They stand in the opening. Other ones than before, in a run that goes on, cost a re-read of the prompt."""
        listed = f"{self._opening}\n{self.protocol.listing(tools)}" if tools else self._opening
        self.entries[0].message = Message(role="system", content=listed)
        self._rewritten()

    def left_out(self, window: int | None) -> int:
        """Characters of the task beyond a third of the window; none where nobody says how large that is."""
        return max(0, len(self.entries[1].message.content) - window * CHARS_PER_TOKEN // 3) if window else 0

    def _clip_task(self) -> None:
        """A task that would fill the window is cut to a third of it."""
        if cut := self.left_out(self.window):
            task = self.entries[1].message.content[:-cut]
            message = f"{task}\n[the task is longer than fits the model: {cut} characters left out]"
            self.entries[1].message = self.entries[1].message.model_copy(update={"content": message})
            self._rewritten()

    def before(self, turn: int) -> str:
        """What was said before `turn`, but for what always stays."""
        old = (entry for entry in self.entries if entry.turn is not None and entry.turn < turn and not entry.own)
        return "\n\n".join(_text(entry.message).removeprefix(_EARLIER).strip() for entry in old)

    def _fold(self, before_turn: int, summary: str) -> None:
        """Old turns become their summary. Without one, old observations become a line each; when that is not enough,
        old turns become one short list.
        """
        for entry in self.entries:
            if entry.foldable and entry.turn is not None and entry.turn < before_turn:
                entry.message = entry.message.model_copy(update={"content": _line(entry.message.content), "images": ()})
                entry.foldable = False
        chars = sum(_size(entry.message) for entry in self.entries)
        if summary or chars / self._ratio > (self.window or ASSUMED_WINDOW) * _FOLDED_SHARE:
            self._collapse(before_turn, summary)
        self._cut_by_window = False
        self._say_own_again(before_turn)
        self._rewritten()

    def _say_own_again(self, before_turn: int) -> None:
        """The whole prompt is read again anyway: the goal comes first, and the bot's own part right after it."""
        if self._own is None:
            return
        self.entries = [entry for entry in self.entries if not entry.own]
        self.entries[1].message = self.entries[1].message.model_copy(update={"content": self._own.goal or self._task})
        if message := whole_prompt(self._own):
            again = _Entry(Message(role="user", content=message), before_turn - 1, own=True)
            self.entries.insert(2, again)

    def _rewritten(self) -> None:
        """Messages that may have been sent are others now."""
        self._sent, self._joined = [], 0
        self._sealed.clear()
        self._bytes = sum(_size(entry.message) for entry in self.entries)
        self._known_tokens = self._known_bytes = 0

    def _collapse(self, before_turn: int, summary: str) -> None:
        old = [
            entry for entry in self.entries if entry.turn is not None and entry.turn < before_turn and not entry.user
        ]
        for entry in self.entries:  # the call that it answers is gone
            if entry.about and entry.turn is not None and entry.turn < before_turn:
                entry.message = Message(role="user", content=f"{entry.about}\n{entry.message.content}")
                entry.about = ""
        lines = [line for entry in old for line in _text(entry.message).splitlines() if line != _EARLIER]
        room = (self.window or ASSUMED_WINDOW) * CHARS_PER_TOKEN // 16
        kept: list[str] = []
        if summary:
            lines, kept = [], [summary[: 4 * room]]
        while lines and room > len(lines[-1]):
            room -= len(lines[-1]) + 1
            kept.insert(0, _line(lines.pop()))
        if not (old or kept):
            return
        gone = {id(entry) for entry in old}
        rest = [entry for entry in self.entries if id(entry) not in gone]
        short = _Entry(Message(role="user", content="\n".join([_EARLIER, *kept])), before_turn - 1)
        self.entries = [*rest[:2], short, *rest[2:]]


_EARLIER = "What you did earlier, in short (the oldest is left out):"


def _text(message: Message) -> str:
    """All that a message costs and says: tool calls too, where the protocol has them beside the content."""
    return message.content if not message.tool_calls else f"{message.content} {json.dumps(message.tool_calls)}"


def _size(message: Message) -> int:
    """In bytes: a token is at least one, and about four in every script."""
    text = message.content if not message.tool_calls else _text(message)
    return len(text.encode(errors="surrogatepass")) + len(message.images) * IMAGE_TOKENS * CHARS_PER_TOKEN


def _next_task(event: RunResumed) -> str:
    """With what its answer has to be, where that is something else than before."""
    if event.output_schema is None:
        return f"New task: {event.task}"
    form = under(event.output_schema) if event.output_schema else "The answer at the end is in words again."
    return f"New task: {event.task}\n{form}"


def _about(step: Step) -> str:
    """What the user answered or refused."""
    if isinstance(step.action, AskUser):
        return f"You asked: {step.action.question}"
    return f"You wanted to do this: {_line(step.action.model_dump_json(exclude_none=True))}"


def _line(text: str) -> str:
    line = text.strip().replace("\n", " | ")
    return line if len(line) <= _FOLDED_CHARS else f"{line[:_FOLDED_CHARS]} [...]"
