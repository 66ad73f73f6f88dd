"""Text for an editor: what it draws as Markdown, paths as they are called there, and lines for its log."""

import re
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from acp.helpers import text_block, tool_content
from acp.schema import ContentToolCallContent

from stockade.core.text import one_line
from stockade_sandbox.policy import Policy


def say(line: str) -> None:
    """On standard error, which editors keep in a log."""
    print(f"stockade: {one_line(line, 1000)}", file=sys.stderr, flush=True)


def fenced(text: str, language: str = "") -> str:
    """As a block of code, whatever it holds."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}{language}\n{text.removesuffix(chr(10))}\n{ticks}"


def words(text: str) -> ContentToolCallContent:
    return tool_content(text_block(text))


@dataclass(frozen=True, slots=True)
class Paths:
    """A run's folders, by what they are called inside and on the host."""

    pairs: tuple[tuple[PurePosixPath, PurePosixPath], ...]
    workdir: PurePosixPath

    @classmethod
    def of(cls, policy: Policy) -> "Paths":
        pairs = ((PurePosixPath(rule.inside), PurePosixPath(rule.host)) for rule in policy.folders)
        return cls(tuple(pairs), PurePosixPath(policy.workdir))

    def host(self, inside: str) -> str | None:
        """What the editor calls it; None for what is only in the sandbox."""
        path = self.workdir / inside
        return next((str(host / path.relative_to(at)) for at, host in self.pairs if path.is_relative_to(at)), None)

    def inside(self, uri: str) -> str | None:
        """What a file of the editor's is called in the sandbox; None for what is not there."""
        parts = urlsplit(uri)
        if parts.scheme not in ("", "file"):
            return None
        path = PurePosixPath(unquote(parts.path))
        if ".." in path.parts:
            return None
        return next((str(at / path.relative_to(host)) for at, host in self.pairs if path.is_relative_to(host)), None)
