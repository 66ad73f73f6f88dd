"""Events into a terminal that reads like a shell session: the bot's thoughts, the prompt, the command, what it gave.

Everything that came from a model, a command, a file name or a task is made safe before it is written (safe.py), and is
handled as text, never as markup.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from stockade.cli.ui.drawing import PREVIEW_CHARS, ActionDrawing, LiveOutput, coloured, drawn, profile_name
from stockade.cli.ui.safe import one_line, some
from stockade.cli.ui.statusline import StatusLine, megabytes
from stockade.cli.ui.summary import detail, model_facts, places, requests, usage_facts
from stockade.core.actions import (
    Answered,
    EditFile,
    Failed,
    FileContent,
    FileWritten,
    Finish,
    Observation,
    Refused,
    Shell,
    Step,
    ToolResult,
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
    Checkpoint,
    HistoryCompacted,
    MessageInjected,
    ModelAnswered,
    ModelStarted,
    NetworkRequested,
    Paused,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
    SelfConfigChanged,
    SubRunFinished,
    SubRunStarted,
    ToolsReady,
)
from stockade.core.secrets import EXACT
from stockade.loop.file_actions import written
from stockade_sandbox.results import CommandOutput, Stream

_THOUGHT = "italic cyan"
_STATUS_STYLES = {"done": "bold green", "stopped": "bold yellow", "failed": "bold red"}
_NAMED = 3
_SHELL_EVENTS = {
    "shell_restored": "the command ended the shell; it goes on with the state from before",
    "shell_restarted": "the shell was started anew; its state is lost",
    "shell_lost_state": "the shell lost its state",
    "shell_impersonated": "something else reported in the shell's place; the shell was restarted",
}
_BAR_STEP = 10
_OF_A_TURN = (AnswerUnderstood, ActionStarted, ActionFinished)


class Renderer:
    """Writes to `console`. `whole`: nothing is clipped. `show_answer`: the answer too, at the end. `show_intro`: the
    scripted actions before the first turn too. `numbered`: each turn begins with its number, as `rewind --to` takes it.
    """

    def __init__(
        self,
        console: Console,
        *,
        live: bool = False,
        whole: bool = False,
        show_answer: bool = False,
        show_intro: bool = False,
        numbered: bool = False,
    ) -> None:
        self.console = console
        self.status = StatusLine(console, live=live)
        self._live = live
        self._whole = whole
        self._drawing = ActionDrawing(whole=whole)
        self._show_answer = show_answer
        self._show_intro = show_intro
        self._numbered = numbered
        self._cwd = "/workspace"
        self._check: tuple[str, ...] = ()
        self._started_at = 0.0
        self._requests: Counter[str] = Counter()
        self._model_s = 0.0
        self._said = ""
        self._last_progress = ("", -1)
        self._last_bar_at = 0.0
        self._turn = 0
        self._name = ""
        self._last_at = 0.0
        self._ended, self._status = False, ""
        self.redactor = EXACT
        """For output as it comes: a secret may come in pieces."""
        self._output: LiveOutput | None = None
        self.echoes = True
        """Whether a task is shown; a user who has just typed it sees it."""

    def event(self, event: RunEvent) -> None:
        """Show one event of a run, in order."""
        self.status.erase()
        self._know(event)
        if isinstance(event, _OF_A_TURN) and not event.turn and not self._show_intro:
            return
        match event:
            case RunStarted():
                self._begin(event)
            case RunResumed():
                self._go_on(event)
            case Checkpoint():
                pass
            case Paused():
                self._paused(event)
            case SandboxStarted():
                self.status.begin("waiting for the model")
            case ModelStarted():
                self._left_out(event)
                self.status.begin("thinking")
            case ModelAnswered():
                self._answered(event)
            case AnswerUnderstood():
                self._thought(event)
            case AnswerUnreadable():
                self._unreadable(event)
            case ActionStarted():
                self._action(event.action)
            case ActionFinished():
                self._observed(event.observation)
                self.status.begin("thinking")
            case MessageInjected():
                self._injected(event)
            case HistoryCompacted():
                self._line("[older results are shown to the model in one line each from here on]", "dim")
                self._left_out(event)
            case SelfConfigChanged():
                self._own(event)
            case ToolsReady(tools=tools):
                names = (f"{tool.name}{' (a function of this program)' if tool.in_process else ''}" for tool in tools)
                self._line(f"[tools: {', '.join(names)}]", "dim")
            case SubRunStarted():
                self._line(f"[a helper begins: stockade runs show {event.run_id}]", "dim")
                self.status.begin("a helper works")
            case SubRunFinished():
                self._line(f"[the helper has ended: {event.status}, {some(event.turns, 'turn')}]", "dim")
            case NetworkRequested():
                self._network(event)
            case CheckFinished():
                self._checked(event)
            case RunFinished():
                self._end(event)
            case ChangesApplied():
                self._line(f"[applied: {some(len(event.paths), 'change')}]", "green")
            case ChangesUndone():
                self._line(f"[undone: {some(len(event.paths), 'change')}]", "yellow")
            case ChangesDiscarded():
                self._line("[the changes were thrown away]", "yellow")

    def _left_out(self, event: ModelStarted | HistoryCompacted) -> None:
        if cut := event.task_left_out:
            words = f"[the task is longer than fits the model: it is not shown the last {some(cut, 'character')}]"
            self._line(words, "yellow")

    def catch_up(self, history: Iterable[RunEvent]) -> None:
        """Know what was, without showing it: the run goes on from there."""
        for event in history:
            self._know(event)

    def _know(self, event: RunEvent) -> None:
        """What later events are shown with."""
        match event:
            case RunStarted():
                self._cwd, self._check, self._started_at = event.policy.workdir, event.check, event.at
                self._name = profile_name(event)
            case RunResumed():
                idle = event.at - self._last_at
                self._started_at = event.at if event.task is not None else self._started_at + idle
                self._check = event.check
            case Paused():
                self._started_at += event.duration_s
            case ModelAnswered():
                self._model_s += event.answer.duration_s
                self._turn = event.turn
            case ActionFinished(observation=CommandOutput(cwd=cwd)):
                self._cwd = cwd or self._cwd
            case NetworkRequested():
                self._requests[event.verdict] += event.count
            case _:
                pass
        self._last_at = event.at

    def text(self, piece: str | None) -> None:
        """A piece of the answer that is being made; only counted, since it is not yet understood.

        None: the answer begins again, and so does the count. An empty one is thinking, counted apart.
        """
        if piece is None:
            self.status.begin("thinking")
        elif piece:
            self.status.piece()
        else:
            self.status.thought()

    def output(self, stream: Stream, data: bytes) -> None:
        """What the command that is running writes, as it comes: whole lines at once, the rest in the status line."""
        if self._output is not None:
            self.status.erase()
            self._output.add(stream, data)
            self.status.detail = self._output.rest

    def tick(self) -> None:
        """Called a few times a second."""
        self.status.tick()

    def progress(self, words: str, done: int, total: int) -> None:
        """News of something long; `total` 0 when there is nothing to count."""
        share = 100 * done // total // _BAR_STEP if total else -1
        if (words, share) == self._last_progress and not (total and self._live):
            return
        if self._live and total:
            finished, now = done >= total, time.monotonic()
            if finished or now - self._last_bar_at > 0.1:
                self._last_bar_at = now
                self.status.bar(words, done, total)
        elif total:
            self.note(f"{words}: {megabytes(done)} of {megabytes(total)}")
        else:
            self.note(words)
        self._last_progress = (words, share)

    def note(self, words: str) -> None:
        """A line for the user."""
        self.status.erase()
        self._line(one_line(words), "dim")

    def close(self) -> None:
        """Leave the terminal as it was found."""
        self.status.end()

    def _print(self, text: Text) -> None:
        self.console.print(text, soft_wrap=True)

    def _line(self, words: str, style: str = "") -> None:
        self._print(Text(words, style))

    def _begin(self, event: RunStarted) -> None:
        where = " · ".join(
            one_line(part) for part in (event.bot, event.model, event.sandbox, *places(event.policy)) if part
        )
        self._print(Text.assemble(("stockade ", "bold"), where))
        if event.model_profile:
            self._print(Text.assemble(("model ", "bold"), one_line(" · ".join(model_facts(event)))))
        self._task(event.task)
        self.status.begin("starting the sandbox")

    def _go_on(self, event: RunResumed) -> None:
        self._ended = False
        if event.live:
            self._task(event.task)
            self.status.begin("thinking")
            return
        words = f"goes on after turn {self._turn} · {one_line(event.model)} · {event.sandbox}"
        self._print(Text.assemble(("stockade ", "bold"), words))
        self._task(event.task)
        self.status.begin("starting the sandbox")

    def _task(self, task: str | None) -> None:
        if task is not None and self.echoes:
            self._print(Text.assemble(("task ", "bold"), one_line(task, 400)))

    def _paused(self, event: Paused) -> None:
        """What was typed at a question stands on the terminal already, when this is not a replay."""
        if event.said is None:
            self._line(f"[held for {event.duration_s:.0f} s]", "dim")
        elif self._whole:
            self._line(f"[asked to authorise it, the user typed: {one_line(event.said, 400)}]", "dim")

    def _answered(self, event: ModelAnswered) -> None:
        self._said = event.answer.content
        if self._numbered:
            self._line(f"turn {event.turn}", "dim")

    def _thought(self, event: AnswerUnderstood) -> None:
        if event.answer.thoughts is not None:
            self._print(drawn(event.answer.thoughts, self._name, whole=self._whole))
        elif event.answer.thought and event.answer.thought.strip():
            self._print(coloured([(event.answer.thought.strip(), _THOUGHT)], whole=self._whole))
        if isinstance(event.answer.steps[0].action, Finish):
            self.status.begin("checking") if self._check else self.status.end()

    def _unreadable(self, event: AnswerUnreadable) -> None:
        if self._said.strip():
            self._print(coloured([(self._said[:PREVIEW_CHARS].strip(), "dim")], whole=self._whole))
        self._line(f"[unreadable answer, attempt {event.attempt}: {one_line(event.message, 400)}]", "yellow")
        self.status.begin("thinking")

    def _injected(self, event: MessageInjected) -> None:
        first, _, rest = event.text.strip().partition("\n")
        more = f" [... {some(rest.count(chr(10)) + 1, 'line')} more]" if rest and not self._whole else ""
        self._line(f"to the bot [{one_line(event.source)}]: {one_line(first)}{more}", "yellow")
        if rest and self._whole:
            self._print(coloured([(rest, "yellow")], whole=True))
        self.status.begin("thinking")

    def _own(self, event: SelfConfigChanged) -> None:
        """What an autonomous bot has set itself."""
        sampling = event.sampling.model_dump(exclude_none=True)
        parts = [
            f"goal: {one_line(event.goal, 200)}" if event.goal else "",
            f"own prompt: {len(event.prompt)} characters" if event.prompt else "",
            ", ".join(f"{name} {value}" for name, value in sampling.items()),
        ]
        self._line(f"[in force: {' · '.join(part for part in parts if part) or 'nothing of its own'}]", "magenta")
        for words in event.refused:
            self._line(f"[not taken: {one_line(words, 300)}]", "yellow")
        self.status.begin("thinking")

    def _action(self, step: Step) -> None:
        if step.comment and step.comment.strip():
            self._line(f"# {one_line(step.comment)}", "dim")
        prompt = Text.assemble((f"{one_line(self._cwd)} $ ", "bold blue"))
        self._print(prompt + self._drawing.spelled(step.action))
        if isinstance(step.action, WriteFile | EditFile):
            self._print(self._drawing.preview(step.action))
        if isinstance(step.action, Shell):
            self._output = LiveOutput(self._print, self.redactor, whole=self._whole)
        self.status.begin("running")

    def _observed(self, observation: Observation) -> None:
        if not isinstance(observation, CommandOutput):
            self._shown_live()
        match observation:
            case CommandOutput():
                self._command(observation)
            case FileContent(path=path, text=text, first=first, last=last, total=total):
                self._print(coloured([(text, "")], whole=self._whole))
                self._line(f"[lines {first} to {last} of {total} of {one_line(path)}]", "dim")
            case FileWritten():
                self._line(one_line(written(observation)), "green")
            case ToolResult(status=status, text=text):
                self._print(coloured([(text, "red" if status == "error" else "")], whole=self._whole))
            case Answered(text=text):
                self._print(coloured([(text, "")], whole=self._whole))
            case Refused(reason=reason):
                self._line(f"[not run: {one_line(reason)}]", "yellow")
            case Failed(message=message):
                self._line(one_line(message), "red")
            case _:
                self._line("[the run was cut here: nobody knows whether this ran]", "yellow")

    def _shown_live(self, pieces: Sequence[tuple[str, str]] | None = None) -> bool:
        """Shows what is left of the output that came while the command ran; whether any came."""
        live, self._output = self._output, None
        return live is not None and live.end(pieces)

    def _command(self, output: CommandOutput) -> None:
        pieces = [
            (chunk.data.decode(errors="backslashreplace"), "red" if chunk.stream == "stderr" else "")
            for chunk in output.chunks
        ]
        if not self._shown_live(pieces) and any(text for text, _ in pieces):
            self._print(coloured(pieces, whole=self._whole))
        if output.truncated_bytes:
            self._line(f"[{output.truncated_bytes} bytes were cut from the middle]", "dim")
        if output.timed_out:
            self._line(f"[timed out after {output.duration_s:.0f} s]", "bold red")
        elif output.shell_event:
            self._line(f"[{_SHELL_EVENTS[output.shell_event]}]", "yellow")
        if output.exit_code:
            self._line(f"[exit {output.exit_code}]", "red")

    def _checked(self, event: CheckFinished) -> None:
        self._print(Text.assemble(("check $ ", "bold magenta")) + self._drawing.highlighted(event.command))
        self._observed(event.observation)
        self._line("[check passed]" if event.passed else "[check failed]", "green" if event.passed else "bold red")
        self.status.begin("thinking")

    def _network(self, event: NetworkRequested) -> None:
        """A line beside what the command itself says."""
        port = f":{event.port}" if event.port else ""
        what = f"{one_line(event.method)} {one_line(event.host) or 'unreadable'}{port}"
        times = f" ({event.count} times)" if event.count > 1 else ""
        if event.verdict == "refused":
            self._line(f"[network refused: {what}{times}: {one_line(event.reason)}]", "yellow")
            return
        how = one_line(event.reason) if event.reason else f"{event.status}"
        self._line(f"[network: {what}{times}: {how}, {event.bytes_up} bytes up, {event.bytes_down} down]", "dim")

    def _end(self, event: RunFinished) -> None:
        self.status.end()
        again, self._ended = self._ended and event.status == self._status, True
        self._status = event.status
        if again:  # what it had changed was counted once more when nothing ran any more
            return
        if self._show_answer and event.answer:
            self._print(coloured([(event.answer, "")], whole=self._whole))
        more = detail(event, 600)
        why = f" ({event.reason.replace('_', ' ')}{f': {more}' if more else ''})"
        verified = {True: f"verified{_but(event.changed_tests)}", False: "not verified", None: ""}[event.verified]
        facts = (verified, some(event.turns, "turn"), f"{max(0.0, event.at - self._started_at):.1f} s",
                 *requests(self._requests), *usage_facts(event.usage, self._model_s))  # fmt: skip
        self._print(
            Text.assemble(
                (event.status, _STATUS_STYLES[event.status]),
                "" if event.reason == "finish" else why,
                (" · " + " · ".join(fact for fact in facts if fact), "dim"),
            )
        )


def _but(changed_tests: Sequence[str]) -> str:
    """What a verdict rests on that the bot has changed."""
    more = len(changed_tests) - _NAMED
    names = ", ".join(one_line(path) for path in changed_tests[:_NAMED])
    return f", but the bot changed {names}{f' and {more} more' if more > 0 else ''}" if names else ""
