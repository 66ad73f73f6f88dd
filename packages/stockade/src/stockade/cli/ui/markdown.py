"""An answer in Markdown as it is drawn on a terminal. What is no markup stays as it was written, to the character.

So no HTML, no reference, no entity and no escape is read (each would take text away), an underscore marks nothing (it
is in names), and a line stays a line with its margin. A link is text with its address beside it, never one that a
terminal opens.
"""

import io
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.theme import Theme

from stockade.cli.ui.console import console_on, results
from stockade.cli.ui.drawing import code_text
from stockade.cli.ui.safe import result_text, safe_text
from stockade.core.events import RunStarted

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.markdown import Markdown

MAX_CHARS = 50_000
"""Of an answer that is drawn; a longer one is shown as it is."""
_TAKES_TEXT = ("html_block", "html_inline", "reference", "entity", "escape", "lheading", "code")
_THEME = Theme(
    {
        "markdown.code": "magenta", "markdown.code_block": "magenta", "markdown.link": "underline",
        "markdown.link_url": "dim", "markdown.list": "none", "markdown.item.number": "bold",
        "markdown.table.border": "dim", "markdown.table.header": "bold",
    }
)  # fmt: skip
"""Rich's is made for a black background."""


def is_prose(started: RunStarted) -> bool:
    """Whether the answers of a run are for people: no JSON, and no program of a bot that calls no tools."""
    return started.output_schema is None and started.actions != ()


def answer_text(text: str, *, plain: bool) -> str:
    """A result for standard output: drawn on a terminal, but for `plain` and one that can do nothing; a pipe gets what
    there is.
    """
    return drawn(text, results(plain=plain)) or result_text(text)


def drawn(text: str, like: Console) -> str | None:
    """`text` in the colours and the width of a console, without a newline at its end; None for one that is plain."""
    if not like.is_terminal or like.is_dumb_terminal or like.color_system is None or len(text) > MAX_CHARS:
        return None
    file = io.StringIO()
    console = console_on(file, like)
    with console.use_theme(_THEME):
        console.print(_markdown(safe_text(text)))
    return "\n".join(line.rstrip(" ") for line in file.getvalue().split("\n")).strip("\n")


def _markdown(text: str) -> "Markdown":
    markdown_class, parser = _tools()
    made: Markdown = markdown_class("", hyperlinks=False)
    made.parsed = parser.parse(text)
    lines = text.split("\n")
    for token in made.parsed:
        first, last = token.map or (0, 0)
        margins = [_margin(line) if token.level == 1 else "" for line in lines[first:last]]
        children = [_kept(child) for child in token.children or ()]
        token.children = _indented(children, margins) if token.type == "inline" else children
    return made


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indented(tokens: Sequence["Token"], margins: Sequence[str]) -> list["Token"]:
    """With the blanks that each line of a paragraph begins with."""
    kept, left = list["Token"](), iter(margins)
    for number, token in enumerate(tokens):
        kept += [token] if number else [_as_text(token, next(left, "")), token]
        if token.type == "hardbreak":
            kept.append(_as_text(token, next(left, "")))
    return kept


def _as_text(token: "Token", text: str) -> "Token":
    return token.copy(type="text", content=text, tag="", nesting=0, children=None)


def _kept(token: "Token") -> "Token":
    """What would take text away is the text."""
    if token.type == "softbreak":
        return token.copy(type="hardbreak")
    if token.markup.startswith("_"):
        return _as_text(token, token.markup)
    if token.markup == "autolink":
        return _as_text(token, "<" if token.nesting > 0 else ">")
    if token.type == "image":
        return _as_text(token, f"![{token.content}]({token.attrs.get('src', '')})")
    return token


@cache
def _tools() -> Any:
    """Rich's class with elements of ours, and the parser. Imported for the first answer that is drawn."""
    from markdown_it import MarkdownIt
    from rich.markdown import CodeBlock, Heading, Markdown
    from rich.text import Text

    class Title(Heading):
        """On the left, in bold."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            yield Text(self.text.plain, "bold underline" if self.tag == "h1" else "bold")

    class Block(CodeBlock):
        """Read by a process of its own."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            yield code_text(str(self.text).rstrip(), self.lexer_name)

    class Drawn(Markdown):
        """What Rich draws otherwise."""

        elements = {**Markdown.elements, "heading_open": Title, "fence": Block}  # noqa: RUF012 (Rich's own form)

    return Drawn, MarkdownIt().enable(["strikethrough", "table"]).disable(list(_TAKES_TEXT))
