"""What the guard of a sandbox writes down of the programs that are started in it: launcher/trace.c says how."""

import os
import struct
from collections.abc import Sequence

from stockade_sandbox.backends.bubblewrap.argv import AGENT_FD
from stockade_sandbox.results import ProgramStart

_COUNT, _HEAD = struct.Struct("=Q"), struct.Struct("=IIQ")
_AGENT = f"/proc/self/fd/{AGENT_FD}"
"""What bubblewrap becomes: before it nothing is of the sandbox."""


class Trace:
    """Of one sandbox, in the memory file `fd`, which the guard goes on writing."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._at, self._read, self._told = _COUNT.size, 0, 0
        self._begun = False

    def news(self) -> tuple[Sequence[ProgramStart], int]:
        """As port.TellsPrograms has it."""
        found = list[ProgramStart]()
        if len(count := os.pread(self.fd, _COUNT.size, 0)) < _COUNT.size:
            return (), 0
        while len(head := os.pread(self.fd, _HEAD.size, self._at)) == _HEAD.size:
            length, _, at_ns = _HEAD.unpack(head)
            if not length:  # the guard is about to
                break
            program, *words = os.pread(self.fd, length, self._at + _HEAD.size).split(b"\0")
            self._at += _HEAD.size + length
            self._read += 1
            argv = tuple(_text(word) for word in (words[:-1] if words[-1:] == [b""] else words))
            if self._begun:
                found.append(ProgramStart(at=at_ns / 1e9, program=_text(program), argv=argv))
            self._begun = self._begun or argv[:1] == (_AGENT,)
        more = max(0, _COUNT.unpack(count)[0] - self._read - self._told)
        self._told += more
        return found, more


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
