"""A sandbox server over HTTP in a process of its own, for tests: bubblewrap, whose proxy finds every name on loopback.

python -m tests.support.remote_server BASE TOKEN_FILE KEEP_S [PORT]      says its address on stdout, ends with stdin
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.backends.remote.allowed import Allowed, Root
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import Network, Policy
from stockade_sandbox.port import OnNetwork, Sandbox
from stockade_sandbox.server.alone import serve
from stockade_sandbox.server.app import App, owners
from stockade_sandbox.server.listening import listen
from stockade_sandbox.server.sessions import OpenBox, Sessions
from tests.support.site import to_loopback


def opener(base: Path) -> OpenBox:
    @asynccontextmanager
    async def open_box(policy: Policy, on_network: OnNetwork) -> AsyncIterator[Sandbox]:
        layers = prepare_layers(policy, base / "layers")
        try:
            sandbox = BubblewrapSandbox(policy, layers, base / "layers", to_loopback)
            sandbox.on_network = on_network
            async with sandbox:
                yield sandbox
        finally:
            for layer in layers:
                Review().discard(layer)

    return open_box


async def main(base: Path, tokens: bytes, keep_s: float, port: int) -> None:
    allowed = Allowed(roots=(Root(path=str(base), mode="rw"),), network=Network(mode="open"), images=True)
    sessions = Sessions(allowed, opener(base), keep_s)
    app, at = App(sessions, owners(tokens.splitlines())), listen("127.0.0.1", port)
    async with anyio.create_task_group() as group:
        group.start_soon(serve, app, sessions, at, None, lambda: None)
        print(f"http://127.0.0.1:{at.getsockname()[1]}", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        group.cancel_scope.cancel()


if __name__ == "__main__":
    where, token_file, keep, *rest = sys.argv[1:]
    anyio.run(main, Path(where), Path(token_file).read_bytes(), float(keep), int(rest[0]) if rest else 0)
