"""What the user allowed, by the exact words of each command: for the run in memory, for always in a file.

What is allowed for always holds for one bot in one place: the folders of the run with their modes. The file is in the
state folder, one line of JSON for each part; a line that is no approval allows nothing and is named.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import Field, ValidationError

from stockade.approval.line import Command
from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade_sandbox.locks import lock

MAX_FILE_BYTES = 10_000_000
MAX_TEXT = 100_000
"""Of one command, in characters. A longer one is allowed for the run only."""


class Approval(Data):
    """What one bot may do in one place: `text`, as it stands in the line. `at`: when the user said so, in UNIX seconds.
    `words`: of a tool, its name behind `@`; of a toolchain its paths; with others they are as version 1 had them.

    `place`: the run's folders in their order, each as PATH:MODE, the path without links; empty for none. Before them
    the other machine, or `unconfined`, where one is named.
    """

    place: tuple[str, ...]
    folders: tuple[str, ...] = ()
    """What tells the folders of `place` from others that are put there later."""
    bot: str = Field(min_length=1)
    words: tuple[str | None, ...] = ()
    text: str = Field(max_length=MAX_TEXT)
    writes: tuple[str | None, ...] = ()
    at: float = Field(allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Read:
    """What is in a file: the approvals in order, and what is wrong with each line that is none."""

    approvals: tuple[Approval, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalFile:
    """The approvals of one user. UsageError names the file when it cannot be used."""

    path: Path

    def read(self) -> Read:
        """Nothing when there is no such file."""
        try:
            with self._opened(os.O_RDONLY) as file:
                return _parsed(self.path, file.read(MAX_FILE_BYTES + 1))
        except FileNotFoundError:
            return Read()

    def add(self, approvals: Sequence[Approval]) -> None:
        """Behind what is there. A last line that was cut off is left to itself."""
        data = b"".join(_line(approval) for approval in approvals)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._opened(os.O_RDWR | os.O_CREAT | os.O_APPEND) as file:
            before = file.read(MAX_FILE_BYTES + 1)
            if len(before) + len(data) > MAX_FILE_BYTES:
                raise UsageError(f"{self.path} would be larger than {MAX_FILE_BYTES} bytes", _WAY_OUT)
            file.write(data if before.endswith(b"\n") or not before else b"\n" + data)

    def remove(self, numbers: Sequence[int]) -> tuple[Approval, ...]:
        """Those that are gone, by their place in `read().approvals`, counted from 1; damaged lines go with them."""
        with self._opened(os.O_RDWR) as file:
            every = _parsed(self.path, file.read(MAX_FILE_BYTES + 1)).approvals
            for number in numbers:
                if not 1 <= number <= len(every):
                    raise UsageError(f"there is no approval {number}", "stockade approvals list")
            left = (approval for number, approval in enumerate(every, 1) if number not in numbers)
            data = b"".join(_line(approval) for approval in left)
            file.seek(0)
            file.truncate()
            file.write(data)
        return tuple(every[number - 1] for number in sorted(set(numbers)))

    def clear(self) -> None:
        """Whatever is in it, or whatever it is."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be removed: {error.strerror}") from None

    @contextmanager
    def _opened(self, flags: int) -> Iterator[BinaryIO]:
        """Locked against other processes. FileNotFoundError where it is not to be made."""
        try:
            descriptor = os.open(self.path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            with open(descriptor, "rb" if flags == os.O_RDONLY else "r+b", buffering=0) as file:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise UsageError(f"{self.path} is no regular file", _WAY_OUT)
                if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                    raise UsageError(f"{self.path} can be written by others", f"chmod 600 {self.path}; is it yours?")
                lock(descriptor, shared=flags == os.O_RDONLY)
                yield file
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UsageError(f"{self.path} cannot be used: {error.strerror}", _WAY_OUT) from None


class Remembered:
    """What is allowed in one run by one `bot` in one `place`, as long as its `folders` are the same. `file` None:
    nothing is kept for always.

    `secrets` names those in a text: what holds one is allowed for the run only, and not written down.
    """

    def __init__(
        self,
        file: ApprovalFile | None = None,
        place: Sequence[str] = (),
        bot: str = "",
        secrets: Callable[[str], Sequence[str]] = lambda _: (),
        folders: Sequence[str] = (),
    ) -> None:
        self._folders = tuple(folders)
        self._file, self._place, self._bot, self._secrets = file, tuple(place), bot, secrets
        kept = file.read() if file is not None else Read()
        self.problems = kept.problems
        mine = (self._place, self._folders, bot)
        here = (one for one in kept.approvals if (one.place, one.folders, one.bot) == mine)
        self._allowed = {(_tool(one.words), one.text) for one in here}

    def allows(self, command: Command) -> bool:
        """Whether it was allowed before."""
        return _key(command) in self._allowed

    def add(self, commands: Sequence[Command], scope: Literal["once", "run", "always"], at: float) -> None:
        """`at`: now."""
        if scope == "once":
            return
        new = {_key(one): one for one in commands if not self.allows(one)}
        self._allowed.update(new)
        if scope == "always" and self._file is not None:
            where = {"place": self._place, "folders": self._folders, "bot": self._bot, "at": at}
            made = [
                Approval.model_validate({**where, "words": words, "text": text})
                for (words, text), one in new.items()
                if len(text) <= MAX_TEXT
                and not any(map(self._secrets, filter(None, (text, *(word.start for word in one.words)))))
            ]
            if made:
                self._file.add(made)


_WAY_OUT = "look at it; stockade approvals rm --all removes it"


def _key(command: Command) -> tuple[tuple[str, ...], str]:
    """The same for the same text, whatever stands around it. What is no character of Unicode is spelled out, so that it
    can be written down.
    """
    text = command.text.strip().encode(errors="backslashreplace").decode()
    return _tool([word.text for word in command.words]), text


def _tool(words: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(word for word in words[:1] if word is not None and word.startswith("@"))


def _line(approval: Approval) -> bytes:
    return json.dumps(approval.model_dump(mode="json")).encode() + b"\n"


def _parsed(path: Path, data: bytes) -> Read:
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes", _WAY_OUT)
    approvals, problems = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            approvals.append(Approval.model_validate_json(line, strict=True))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            problems.append(f"{path}, line {number}, allows nothing: {where}{': ' if where else ''}{first['msg']}")
    return Read(tuple(approvals), tuple(problems))
