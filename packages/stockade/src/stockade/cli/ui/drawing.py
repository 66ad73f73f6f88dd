"""Output, actions and thoughts as they are shown in a terminal: clipped, highlighted. Whole, they are on record."""

import codecs
import json
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from rich.text import Text

from stockade.cli.ui.safe import fit_for_terminal, one_line, safe_text, some
from stockade.core.actions import (
    Action,
    AskUser,
    EditFile,
    Finish,
    InvalidCall,
    ReadFile,
    Shell,
    SubTask,
    Thoughts,
    ToolCall,
    WriteFile,
)
from stockade.core.events import RunStarted
from stockade.core.secrets import Redactor
from stockade.highlighting import highlighted
from stockade_sandbox.results import Stream

if TYPE_CHECKING:
    from rich.syntax import Syntax, SyntaxTheme


CODE_STYLES = {
    "Comment": "dim", "Keyword": "bold", "Name.Builtin": "bold", "Name.Function": "bold", "Name.Class": "bold",
    "Name.Variable": "magenta", "Literal.String": "green", "Generic.Deleted": "red", "Generic.Inserted": "green",
    "Generic.Heading": "bold", "Generic.Subheading": "magenta",
}  # fmt: skip
"""What is read on white as on black: red, green, magenta, nothing brighter, and never yellow, cyan or blue."""
HEAD_LINES, TAIL_LINES = 30, 10
MAX_LINE_CHARS = 4000


def coloured(pieces: Iterable[tuple[str, str]], *, whole: bool = False) -> Text:
    """The pieces (text, style) in their order, safe, without a newline at the end."""
    text = Text()
    for piece, style in pieces:
        text.append(safe_text(piece), style or None)
    if text.plain.endswith("\n"):
        text.right_crop(1)
    return text if whole else clip_lines(text)


def clip_lines(text: Text) -> Text:
    """At most HEAD_LINES and TAIL_LINES of it, each of bounded length, and a line that says what is left out."""
    lines = list(text.split("\n", allow_blank=True))
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if left_out > 1:
        note = Text(f"[... {left_out} lines not shown ...]", "dim")
        lines = [*lines[:HEAD_LINES], note, *lines[-TAIL_LINES:]]
    return Text("\n").join(_clip_line(line) for line in lines)


def _clip_line(line: Text) -> Text:
    if len(line) <= MAX_LINE_CHARS:
        return line
    missing = len(line) - MAX_LINE_CHARS
    return Text.assemble(line[:MAX_LINE_CHARS], (f"[... {missing} characters not shown]", "dim"))


_REST_CHARS = 60


class LiveOutput:
    """A command's output as it comes: whole lines, in order, folded as in `clip_lines` unless it is to be `whole`.

    Half a line waits for the rest of it, and so does what may be the beginning of a secret. Lines that are folded are
    counted only; the last of them are in what is on record.
    """

    def __init__(self, show: Callable[[Text], None], redactor: Redactor, *, whole: bool) -> None:
        self._show, self._most = show, None if whole else HEAD_LINES
        self._made = partial(Lines, redactor, self._lines)
        self._streams: dict[Stream, Lines] = {}
        self._shown = self._folded = 0
        self._ends_in = b"\n"

    def add(self, stream: Stream, data: bytes) -> None:
        self._ends_in = data[-1:]
        if self._folds():
            self._folded += data.count(b"\n")
            return
        if stream not in self._streams:
            self._streams[stream] = self._made("red" if stream == "stderr" else "")
        self._streams[stream].add(data)
        if self._folds():
            self._finish()

    def _folds(self) -> bool:
        return self._folded > 0

    def _lines(self, lines: list[str], style: str) -> None:
        """All at once: a flood is drawn some ten times as fast."""
        room = len(lines) if self._most is None else self._most - self._shown
        if shown := lines[:room]:
            self._shown += len(shown)
            self._show(Text("\n").join(_clip_line(Text(line, style)) for line in shown))
        self._folded += len(lines) - len(shown)

    def _finish(self) -> None:
        for one in self._streams.values():
            one.end()
        self._streams.clear()

    @property
    def rest(self) -> str:
        """What there is beside the lines that were shown, in a few words."""
        if self._folded:
            return f"{some(self._folded, 'more line')}, -v shows all"
        return one_line("".join(one.half for one in self._streams.values()), _REST_CHARS)

    def end(self, pieces: Iterable[tuple[str, str]] | None = None) -> bool:
        """Shows what is left; `pieces` are all of it, text and style, as it is on record. False when nothing came."""
        came = bool(self._shown or self._folded or self._streams)
        self._finish()
        if self._folded:
            left = self._folded + (self._ends_in != b"\n")
            last = list(coloured(pieces, whole=True).split("\n")) if pieces else list[Text]()
            kept = left if left <= TAIL_LINES + 1 else TAIL_LINES
            if left > kept or not last:
                self._show(Text(f"[... {some(left - kept if last else left, 'line')} not shown ...]", "dim"))
            for line in last[-kept:]:
                self._show(_clip_line(line))
        return came


class Lines:
    """Of one stream: whole lines, without secrets and escapes, shown with a style."""

    def __init__(self, redactor: Redactor, show: Callable[[list[str], str], None], style: str) -> None:
        self._show, self._style = show, style
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
        self._hidden = redactor.stream(self._take)
        self._begun = ""

    def add(self, data: bytes) -> None:
        self._hidden(self._decoder.decode(data))

    def _take(self, text: str | None) -> None:
        *lines, self._begun = f"{self._begun}{text or ''}".split("\n")
        self._show([fit_for_terminal(line.removesuffix("\r")) for line in lines], self._style)
        if len(self._begun) > 2 * MAX_LINE_CHARS:  # of a line without an end more is never drawn
            self._begun = f"{self._begun[:MAX_LINE_CHARS]}{self._begun[-MAX_LINE_CHARS:]}"

    @property
    def half(self) -> str:
        """Of the line that has no end yet, what a terminal would show last."""
        return self._begun.rstrip("\r").rpartition("\r")[2]

    def end(self) -> None:
        self._hidden(self._decoder.decode(b"", True))
        self._hidden.flush()
        if self._begun:
            self._take("\n")


PREVIEW_CHARS = 20_000
_HIGHLIGHTED_CHARS = 4000


def code_theme() -> "SyntaxTheme":
    from rich.style import Style
    from rich.syntax import ANSI_DARK, ANSISyntaxTheme

    tokens = {str(token).removeprefix("Token."): token for token in ANSI_DARK}
    return ANSISyntaxTheme({tokens[name]: Style.parse(style) for name, style in CODE_STYLES.items()})


def code_text(code: str, language: str) -> Text:
    """In the colours of the terminal, which may be dark or light."""
    text = Text(tab_size=4)
    for kind, piece in highlighted([(language, code)])[0] or (("", code),):
        names = [kind.rsplit(".", depth)[0] for depth in range(kind.count(".") + 1)]
        text.append(piece, next((CODE_STYLES[name] for name in names if name in CODE_STYLES), None))
    return text


def mark(action: Action) -> str:
    """Behind a shell's prompt only what a shell runs: the call of a tool may have the same words, behind `>`."""
    return "$" if isinstance(action, Shell) else ">"


class ActionDrawing:
    """`whole`: nothing is clipped. Without `colour` nothing is highlighted: what does it is slow to import."""

    def __init__(self, *, whole: bool = False, colour: bool = True) -> None:
        self._whole, self._colour = whole, colour

    @cached_property
    def _syntax(self) -> "Syntax":
        """Imported for the first command: a run begins sooner, and one in JSON needs none."""
        from rich.syntax import Syntax

        return Syntax("", "bash", theme=code_theme(), background_color="default")

    def prompted(self, action: Action, cwd: str) -> Text:
        where = f"{one_line(cwd)} " if isinstance(action, Shell) else ""
        return Text.assemble((f"{where}{mark(action)} ", "bold"), self._spelled(action))

    def _spelled(self, action: Action) -> Text:
        match action:
            case Shell(command=command):
                return self.highlighted(command.strip("\n"))
            case ReadFile(path=path, start=start, end=end):
                lines = f" (lines {start or 1} to {end or 'the end'})" if start or end else ""
                return Text(f"read_file {one_line(path)}{lines}")
            case WriteFile(path=path) | EditFile(path=path):
                return Text(f"{action.tool} {one_line(path)}")
            case ToolCall(name=name, arguments=arguments):
                return Text(one_line(f"{name} {json.dumps(arguments, ensure_ascii=False)}", 2000))
            case AskUser(question=question):
                return Text(f"ask_user {one_line(question)}")
            case SubTask(task=task, name=who, model=model, in_parallel=others):
                whom = " ".join(filter(None, (who, model and f"({model} model)")))
                tasks = " | ".join(one_line(one) for one in (task, *others))
                return Text(f"sub_task {f'{whom}: ' if whom else ''}{tasks}")
            case InvalidCall(name=name, written=written):
                return Text(one_line(f"{name} {written}", 2000))
            case Finish():
                return Text("finish")

    def highlighted(self, command: str) -> Text:
        safe = safe_text(command)
        if len(safe) > _HIGHLIGHTED_CHARS:
            return Text(safe) if self._whole else clip_lines(Text(safe))
        text = self._syntax.highlight(safe) if self._colour else Text(safe)
        text.rstrip()
        return text

    def preview(self, action: WriteFile | EditFile) -> Text:
        """What is written, its beginning."""
        return coloured(_pieces(action), whole=self._whole)


def _pieces(action: WriteFile | EditFile) -> list[tuple[str, str]]:
    if isinstance(action, WriteFile):
        return [(action.content[:PREVIEW_CHARS], "dim")]
    old = "".join(f"- {line}\n" for line in action.old[:PREVIEW_CHARS].split("\n"))
    new = "".join(f"+ {line}\n" for line in action.new[:PREVIEW_CHARS].split("\n"))
    return [(old, "red"), (new, "green")]


_THOUGHT = "italic"


def profile_name(started: RunStarted) -> str:
    """How the bot of a run is called; empty for one without a profile."""
    profile = started.options.get("profile")
    name = profile.get("name") if isinstance(profile, dict) else None
    return one_line(name, 60) if isinstance(name, str) else ""


def drawn(thoughts: Thoughts, name: str, *, whole: bool) -> Text:
    """Its parts by name, those that are empty left out."""
    who = f"{name.upper()} " if name else ""
    parts = [
        _part(f"{who}THOUGHTS", thoughts.text, whole=whole),
        _part("REASONING", thoughts.reasoning, whole=whole),
        _part("PLAN", "\n".join(f"- {one_line(step)}" for step in thoughts.plan), whole=whole, below=True),
        _part("CRITICISM", thoughts.criticism, whole=whole),
        _part("SPEAK", thoughts.speak, whole=whole),
    ]
    return Text("\n").join(part for part in parts if part is not None)


def _part(title: str, text: str, *, whole: bool, below: bool = False) -> Text | None:
    if not text.strip():
        return None
    return Text.assemble((f"{title}:", "bold"), "\n" if below else " ", coloured([(text, _THOUGHT)], whole=whole))
