"""Sandboxes of a server that note what was done, and a way to it that can be cut, held and chopped into pieces."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from stockade.core.ports import ExecResult, OnNetwork, Sandbox
from stockade.testing import MemorySandbox
from stockade_sandbox.backends.remote.endpoint import Address
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnOutput
from stockade_sandbox.results import Chunk, CommandOutput, Stream

_GONE = (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Box(MemorySandbox):
    """Notes what was done. The command `slow` waits for `go`, and `talk N` writes N pieces, two at a time."""

    on_output: OnOutput | None = None

    def __init__(self) -> None:
        super().__init__()
        self.go = anyio.Event()
        self.began = anyio.Event()
        self.fails: dict[str, Exception] = {}

    def write(self, stream: Stream, data: bytes) -> bool:
        """As a command does; whether anybody is shown it."""
        if self.on_output is not None:
            self.on_output(stream, data)
        return self.on_output is not None

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        self.ran.append(command)
        if command in self.fails:
            raise self.fails[command]
        if command == "slow":
            self.began.set()
            await self.go.wait()
        for number in range(int(command.partition("talk ")[2] or 0)):
            self.write("stderr" if number % 3 else "stdout", b"%d " % number)
            if number % 2:
                await anyio.lowlevel.checkpoint()
        return CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", f"did {command}".encode()),), cwd="/workspace")

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        self.ran.append(" ".join(argv))
        return ExecResult(exit_code=len(argv), stdout=stdin[:max_output_bytes], stderr=b"\xff" + stdin[:3])


class Boxes:
    """Every sandbox that was opened, and how many are open."""

    def __init__(self) -> None:
        self.made: list[Box] = []
        self.open = 0
        self.policies: list[Policy] = []
        self.none_open = anyio.Event()

    @asynccontextmanager
    async def opener(self, policy: Policy, on_network: OnNetwork) -> AsyncIterator[Sandbox]:
        box = Box()
        box.on_network = on_network
        self.made.append(box)
        self.policies.append(policy)
        self.open += 1
        self.none_open = anyio.Event()
        try:
            async with box:
                yield box
        finally:
            self.open -= 1
            if not self.open:
                self.none_open.set()


class Way:
    """Between client and server: pieces of `size` bytes; `cut_after` that many bytes in one direction, once each."""

    def __init__(self, to: Address) -> None:
        self.to = to
        self.size = 65536
        self.cut_up: int | None = None
        self.cut_down: int | None = None
        self.connections = 0
        self.streams: list[ByteStream] = []
        self.carried = b""

    async def serve(self, stream: ByteStream) -> None:
        self.connections += 1
        async with stream:
            try:
                far = await anyio.connect_tcp(self.to.host, self.to.port)
            except OSError:
                return
            async with far, anyio.create_task_group() as group:
                self.streams += [stream, far]
                self.connections += 1
                group.start_soon(self._carry, stream, far, True)
                group.start_soon(self._carry, far, stream, False)

    async def cut(self) -> None:
        """Every connection, now."""
        streams, self.streams = self.streams, []
        for stream in streams:
            await anyio.aclose_forcefully(stream)

    async def _carry(self, source: ByteStream, target: ByteStream, up: bool) -> None:
        with suppress(*_GONE):
            while True:
                data = await source.receive(self.size)
                self.carried += data
                left = self.cut_up if up else self.cut_down
                if left is not None and len(data) >= left:
                    await target.send(data[:left])
                    if up:
                        self.cut_up = None
                    else:
                        self.cut_down = None
                    await self.cut()
                    return
                if left is not None:
                    if up:
                        self.cut_up = left - len(data)
                    else:
                        self.cut_down = left - len(data)
                await target.send(data)
        await anyio.aclose_forcefully(source)
        await anyio.aclose_forcefully(target)


async def until(true: Callable[[], bool | Awaitable[bool]], patience_s: float = 20.0) -> None:
    """For what no event tells: looked at until it holds."""
    with anyio.fail_after(patience_s):
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            await anyio.sleep(0.01)
