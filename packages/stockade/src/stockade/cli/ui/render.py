"""Events into a terminal that reads like a shell session: the bot's thoughts, the prompt, the command, what it gave.

Everything that came from a model, a command, a file name or a task is made safe before it is written (safe.py), and is
handled as text, never as markup.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from stockade.cli.ui import markdown
from stockade.cli.ui.console import write_prose
from stockade.cli.ui.drawing import PREVIEW_CHARS, ActionDrawing, LiveOutput, coloured, drawn, profile_name
from stockade.cli.ui.safe import one_line, some
from stockade.cli.ui.statusline import StatusLine, megabytes
from stockade.cli.ui.summary import (
    detail,
    driver_of,
    model_facts,
    network,
    places,
    refused_line,
    requests,
    usage_facts,
    used_so_far,
    verdict,
)
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
    CandidateChosen,
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
from stockade.core.messages import Image, Usage
from stockade.core.secrets import EXACT
from stockade.loop.file_actions import written
from stockade_sandbox.results import CommandOutput, Stream

_THOUGHT = "italic"
_STATUS_STYLES = {"done": "green", "stopped": "bold magenta", "failed": "bold red"}
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
        self._drawing = ActionDrawing(whole=whole, colour=console.color_system is not None)
        self._show_answer = show_answer
        self._show_intro = show_intro
        self._numbered = numbered
        self._cwd = "/workspace"
        self._check: tuple[str, ...] = ()
        self._started_at = 0.0
        self._requests, self._missing = Counter[str](), Counter[str]()
        self._model_s = 0.0
        self._used = Usage()
        self.prose = True
        """Whether the answers of this run are for people."""
        self._said, self._by = "", ""
        self._last_progress = ("", -1)
        self._last_bar_at = 0.0
        self._turn, self._name, self._last_at = 0, "", 0.0
        self._ended, self._status = False, ""
        self._bot, self._narrator = driver_of(None)
        self._set: dict[str, str] = {}
        self._lines: Sequence[tuple[str, str]] | None = None
        self.redactor = EXACT
        """For output as it comes: a secret may come in pieces."""
        self._output: LiveOutput | None = None
        self.echoes = True
        """Whether a task is shown; a user who has just typed it sees it."""

    def event(self, event: RunEvent) -> None:
        """Show one event of a run, in order."""
        self.status.erase()
        self._know(event)
        if self._told(event) or (isinstance(event, _OF_A_TURN) and not event.turn and not self._show_intro):
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
            case SubRunStarted() | SubRunFinished() | CandidateChosen():
                self._sub_run(event)
            case NetworkRequested():
                self._network(event)
            case CheckFinished():
                self._checked(event)
            case RunFinished():
                self._end(event)
            case ChangesApplied():
                self._line(f"[applied: {one_line(', '.join(event.paths), 80)}]", "green")
            case ChangesUndone():
                self._line(f"[undone: {one_line(', '.join(event.paths), 80)}]", "magenta")
            case ChangesDiscarded():
                self._line(f"[changes discarded: {one_line(', '.join(event.paths), 80)}".rstrip(": ") + "]", "magenta")

    def _sub_run(self, event: SubRunStarted | SubRunFinished | CandidateChosen) -> None:
        if isinstance(event, CandidateChosen):
            self._line(f"[taken over: {event.run_id}; what it did follows]", "green")
            return
        helper = event.number is None
        who = "the helper" if helper else f"candidate {event.number}"
        if isinstance(event, SubRunStarted):
            self._line(f"[{who.replace('the', 'a')} begins: stockade runs show {event.run_id}]", "dim")
            self.status.begin("a helper works" if helper else "candidates work")
            return
        verified = {True: ", verified", False: ", not verified", None: ""}[event.verified]
        cost = f", {event.usage.cost:.4f} USD" if event.usage.cost else ""
        self._line(f"[{who} has ended: {event.status}{verified}, {some(event.turns, 'turn')}{cost}]", "dim")

    def _left_out(self, event: ModelStarted | HistoryCompacted) -> None:
        if cut := event.task_left_out:
            words = f"[the task is longer than fits the model: it is not shown the last {some(cut, 'character')}]"
            self._line(words, "magenta")

    def catch_up(self, history: Iterable[RunEvent]) -> None:
        """Know what was, without showing it: the run goes on from there."""
        for event in history:
            self._know(event)

    def _know(self, event: RunEvent) -> None:
        """What later events are shown with."""
        self._lines = self._narrator(event) if self._narrator is not None else None
        match event:
            case RunStarted():
                self._bot, narrator = driver_of(event)
                self._narrator = None if self._whole else narrator
                self._cwd, self._check, self._started_at = event.policy.workdir, event.check, event.at
                self._name, self.prose = profile_name(event), markdown.is_prose(event)
            case RunResumed():
                idle = event.at - self._last_at
                self._started_at = event.at if event.task is not None else self._started_at + idle
                self._check = event.check
            case Paused():
                self._started_at += event.duration_s
            case ModelAnswered():
                self._model_s += event.answer.duration_s
                self._turn = event.turn
                self._use(event.answer.usage)
            case HistoryCompacted() | SubRunFinished():
                self._use(event.usage)
            case CandidateChosen():
                self._use(Usage() - event.usage)
            case ActionFinished(observation=CommandOutput(cwd=cwd)):
                self._cwd = cwd or self._cwd
            case NetworkRequested():
                self._requests[event.verdict] += event.count
                self._missing[event.allow] += event.count
            case _:
                pass
        self._last_at = event.at

    def _told(self, event: RunEvent) -> bool:
        """Whether its bot has words of its own for it."""
        if self._lines is None:
            return False
        for line in self._lines:
            self._print(coloured([line]))
        self.status.begin("running" if isinstance(event, AnswerUnderstood | ActionStarted) else "thinking")
        return True

    def _use(self, usage: Usage) -> None:
        self._used += usage
        self.status.used = used_so_far(self._used)

    def text(self, piece: str | None) -> None:
        """A piece of the answer that is being made; counted, and shown as it is where that is wanted.

        None: the answer begins again, and so does the count. An empty one is thinking, counted apart.
        """
        if piece is None:
            self.status.begin("thinking")
        elif piece:
            self.status.piece(piece)
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
        """As it is: the terminal breaks what is too long, and what is copied is whole."""
        self.console.print(text, soft_wrap=True)

    def _line(self, words: str | Text, style: str = "") -> None:
        write_prose(self.console, words, style)

    def _begin(self, event: RunStarted) -> None:
        where = " · ".join(
            one_line(part) for part in (event.bot, event.model, event.sandbox, *places(event.policy, self._bot)) if part
        )
        self._line(Text.assemble(("stockade ", "bold"), where))
        if event.model_profile:
            self._line(Text.assemble(("model ", "bold"), one_line(" · ".join(model_facts(event)))))
        self._task(event.task, event.images)
        self.status.begin("starting the sandbox")

    def _go_on(self, event: RunResumed) -> None:
        self._ended = False
        if event.live:
            self._task(event.task, event.images)
            self.status.begin("thinking")
            return
        words = f"goes on after turn {self._turn} · {one_line(event.model)} · {event.sandbox}"
        if event.network is not None:
            words += f" · {one_line(network(event.network))}"
        self._line(Text.assemble(("stockade ", "bold"), words))
        self._task(event.task, event.images)
        self.status.begin("starting the sandbox")

    def _task(self, task: str | None, images: Sequence[Image]) -> None:
        if task is not None and self.echoes:
            self._line(Text.assemble(("task ", "bold"), one_line(task, 400)))
        for image in images:
            kind = image.media_type.partition("/")[2]
            self._line(f"[image: {one_line(image.name, 80)}, {kind}, {image.kilobytes} kB]", "dim")

    def _paused(self, event: Paused) -> None:
        """What was typed at a question stands on the terminal already, when this is not a replay."""
        if event.slept:
            self._line("[the machine slept, or its clock was set: this time is not counted]", "dim")
        elif event.said is None:
            self._line(f"[waited {event.duration_s:.0f} s for you]", "dim")
        elif self._whole:
            self._line(f"[asked to authorise it, the user typed: {one_line(event.said, 400)}]", "dim")

    def _answered(self, event: ModelAnswered) -> None:
        self._said = event.answer.content
        if event.answer.by != self._by:
            self._by, why = event.answer.by, one_line(event.answer.why, 400)
            self._line(
                f"[{one_line(self._by)} answers: {why}]" if self._by else "[the run's own model answers]", "magenta"
            )
        if self._numbered:
            self._line(f"turn {event.turn}", "dim")

    def _thought(self, event: AnswerUnderstood) -> None:
        if event.answer.thoughts is not None:
            self._line(drawn(event.answer.thoughts, self._name, whole=self._whole))
        elif words := event.answer.shown.strip():
            self._line(coloured([(words, _THOUGHT)], whole=self._whole))
        if isinstance(event.answer.steps[0].action, Finish):
            self.status.begin("checking") if self._check else self.status.end()

    def _unreadable(self, event: AnswerUnreadable) -> None:
        if self._said.strip():
            self._print(coloured([(self._said[:PREVIEW_CHARS].strip(), "dim")], whole=self._whole))
        self._line(f"[unreadable answer, attempt {event.attempt}: {one_line(event.message, 400)}]", "magenta")
        self.status.begin("thinking")

    def _injected(self, event: MessageInjected) -> None:
        first, _, rest = event.text.strip().partition("\n")
        more = f" [... {some(rest.count(chr(10)) + 1, 'line')} more]" if rest and not self._whole else ""
        self._line(f"to the bot [{one_line(event.source)}]: {one_line(first)}{more}", "magenta")
        if rest and self._whole:
            self._print(coloured([(rest, "magenta")], whole=True))
        self.status.begin("thinking")

    def _own(self, event: SelfConfigChanged) -> None:
        """What an autonomous bot has set itself, where it is another than before."""
        sampling = event.sampling.model_dump(exclude_none=True)
        parts = {
            "goal": one_line(event.goal, 200) if event.goal else "",
            "own prompt": some(len(event.prompt), "character") if event.prompt else "",
            "sampling": ", ".join(f"{name} {value}" for name, value in sampling.items()),
        }
        for name, words in parts.items():
            if words != self._set.get(name, ""):
                self._line(f"{name}: {words or 'as it began'}", "magenta")
        self._set = parts
        for words in event.refused:
            self._line(f"[not taken: {one_line(words, 300)}]", "magenta")
        self.status.begin("thinking")

    def _action(self, step: Step) -> None:
        if step.comment and step.comment.strip():
            self._line(f"# {one_line(step.comment)}", "dim")
        self._print(self._drawing.prompted(step.action, self._cwd))
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
                self._line(f"[not run: {one_line(reason)}]", "magenta")
            case Failed(message=message):
                self._line(one_line(message), "red")
            case _:
                self._line("[interrupted here: this command may or may not have run]", "magenta")

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
            self._line(f"[{_SHELL_EVENTS[output.shell_event]}]", "magenta")
        if output.exit_code:
            self._line(f"[exit {output.exit_code}]", "red")

    def _checked(self, event: CheckFinished) -> None:
        self._print(Text.assemble(("check $ ", "bold magenta")) + self._drawing.highlighted(event.command))
        self._observed(event.observation)
        failed = "failed: see --command-timeout" if getattr(event.observation, "timed_out", False) else "failed"
        self._line(f"[check {'passed' if event.passed else failed}]", "green" if event.passed else "bold red")
        self.status.begin("thinking")

    def _network(self, event: NetworkRequested) -> None:
        """A line beside what the command itself says."""
        port = f":{event.port}" if event.port else ""
        what = f"{one_line(event.method)} {one_line(event.host) or 'unreadable'}{port}"
        times = f" ({event.count} times)" if event.count > 1 else ""
        if event.verdict == "refused":
            self._line(f"[network refused: {what}{times}: {one_line(event.reason)}]", "magenta")
            return
        how = one_line(event.reason) if event.reason else f"{event.status}"
        how += f", with {one_line(event.credential)}" if event.credential else ""
        self._line(f"[network: {what}{times}: {how}, {event.bytes_up} bytes up, {event.bytes_down} down]", "dim")

    def _end(self, event: RunFinished) -> None:
        self.status.end()
        again, self._ended = self._ended and event.status == self._status, True
        self._status = event.status
        if again:  # what it had changed was counted once more when nothing ran any more
            return
        if self._show_answer and event.answer:
            self._answer(event.answer)
        if refused := refused_line(self._missing):
            self._line(refused, "magenta")
        more = detail(event, 600)
        why = f" ({event.reason.replace('_', ' ')}{f': {more}' if more else ''})"
        facts = (verdict(event), some(event.turns, "turn"), f"{max(0.0, event.at - self._started_at):.1f} s",
                 *requests(self._requests), *usage_facts(event.usage, self._model_s))  # fmt: skip
        self._line(
            Text.assemble(
                (event.status, _STATUS_STYLES[event.status]),
                "" if event.reason == "finish" else why,
                (" · " + " · ".join(fact for fact in facts if fact), "dim"),
            )
        )

    def _answer(self, answer: str) -> None:
        """As at the end of the run itself."""
        if self.prose and (text := markdown.drawn(answer, self.console)) is not None:
            self.console.file.write(f"{text}\n")
        else:
            self._print(coloured([(answer, "")], whole=self._whole))
