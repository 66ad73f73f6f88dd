"""A sandbox server over HTTP in a process of its own, for tests: bubblewrap, whose proxy finds every name on loopback.

python -m tests.support.http_server BASE TOKEN_FILE KEEP_S [PORT]      says its address on stdout, ends with stdin
"""

import sys
from pathlib import Path

import anyio
import anyio.to_thread

from stockade_sandbox.backends.remote.allowed import Allowed, Root
from stockade_sandbox.policy import Network
from stockade_sandbox.server.alone import serve
from stockade_sandbox.server.app import App, owners
from stockade_sandbox.server.listening import listen
from stockade_sandbox.server.sessions import Sessions
from tests.support.remote_server import opener


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
