"""An action as it is shown in a terminal: a command highlighted, a file's new text in part."""

from functools import cached_property
from typing import TYPE_CHECKING

from rich.text import Text

from stockade.cli.clipped import clip_lines, coloured
from stockade.cli.safe import one_line, safe_text
from stockade.core.actions import (
    Action,
    AskUser,
    EditFile,
    Finish,
    InvalidCall,
    ReadFile,
    Shell,
    SubTask,
    ToolCall,
    WriteFile,
)

if TYPE_CHECKING:
    from rich.syntax import Syntax

PREVIEW_CHARS = 20_000
_HIGHLIGHTED_CHARS = 4000


class ActionDrawing:
    """`whole`: nothing is clipped."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole

    @cached_property
    def _syntax(self) -> "Syntax":
        """Imported for the first command: a run begins sooner, and one in JSON needs none."""
        from rich.syntax import Syntax

        return Syntax("", "bash", theme="ansi_dark", background_color="default")

    def spelled(self, action: Action) -> Text:
        match action:
            case Shell(command=command):
                return self.highlighted(command.strip("\n"))
            case ReadFile(path=path, start=start, end=end):
                lines = f" (lines {start or 1} to {end or 'the end'})" if start or end else ""
                return Text(f"read_file {one_line(path)}{lines}")
            case WriteFile(path=path) | EditFile(path=path):
                return Text(f"{action.tool} {one_line(path)}")
            case ToolCall(name=name, arguments=arguments):
                return Text(one_line(f"{name} {arguments}", 2000))
            case AskUser(question=question):
                return Text(f"ask_user {one_line(question)}")
            case SubTask(task=task):
                return Text(f"sub_task {one_line(task)}")
            case InvalidCall(name=name, written=written):
                return Text(one_line(f"{name} {written}", 2000))
            case Finish():
                return Text("finish")

    def highlighted(self, command: str) -> Text:
        safe = safe_text(command)
        if len(safe) > _HIGHLIGHTED_CHARS:
            return Text(safe) if self._whole else clip_lines(Text(safe))
        text = self._syntax.highlight(safe)
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
