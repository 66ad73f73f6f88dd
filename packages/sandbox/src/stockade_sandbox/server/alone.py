"""A server of its own: `python -m stockade_sandbox.server.alone --listen 127.0.0.1:8711 --token-file token`."""

import argparse
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

from stockade_sandbox.backends.remote import endpoint
from stockade_sandbox.backends.remote.allowed import Allowed
from stockade_sandbox.backends.remote.endpoint import Address
from stockade_sandbox.errors import StockadeError, UsageError
from stockade_sandbox.policy import Policy, is_loopback, parse_network
from stockade_sandbox.port import OnNetwork, Sandbox
from stockade_sandbox.processes import BOX, boxes_dir, own_prefix
from stockade_sandbox.registry import DEFAULT, backend_named, load
from stockade_sandbox.server.app import App, owners
from stockade_sandbox.server.listening import listen, make_server
from stockade_sandbox.server.sessions import KEEP_S, OpenBox, Sessions, to_stderr
from stockade_sandbox.stoppable import stoppable

PORT = 8711


async def serve(
    app: App, sessions: Sessions, at: socket.socket, certificate: tuple[Path, Path] | None, ready: Callable[[], None]
) -> None:
    """Until cancelled. Then what waits for an answer gets none, and every sandbox ends."""
    server = make_server(app.app, certificate, last_s=1)
    async with anyio.create_task_group() as group:
        await group.start(sessions.run)
        with anyio.CancelScope(shield=True):  # uvicorn ends in order, not in the middle

            async def watch() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    server.should_exit = server.force_exit = True

            group.start_soon(watch)
            ready()
            await server.serve(sockets=[at])
        group.cancel_scope.cancel()


def own_boxes(backend: str) -> OpenBox:
    """Sandboxes of that backend, each gone with all that belongs to it when it is left."""
    made = backend_named(backend)

    @asynccontextmanager
    async def open_box(policy: Policy, on_network: OnNetwork) -> AsyncIterator[Sandbox]:
        base = boxes_dir() / f"{own_prefix(BOX)}{secrets.token_hex(4)}"
        try:
            box = await stoppable(partial(made.prepare, policy, base))
            box.on_network = on_network
            async with box:
                yield box
        finally:
            with anyio.CancelScope(shield=True):
                if base.exists():
                    await to_thread.run_sync(load("overlay.discard:remove_tree"), base)

    return open_box


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m stockade_sandbox.server.alone", description=__doc__)
    add = parser.add_argument
    add("--listen", default=f"127.0.0.1:{PORT}", metavar="HOST:PORT", help="where; port 0 takes any")
    add(
        "--token-file",
        type=Path,
        default=endpoint.token_path(),
        metavar="FILE",
        help="a token a line; made when absent",
    )
    add("--allow", action="append", default=[], metavar="PATH[:MODE]", help="a folder that may be used; ro or rw")
    add("--net", default="none", metavar="none|open|HOST,...", help="the most network that may be asked for")
    add("--allow-images", action="store_true", help="another root file system may be asked for")
    add("--backend", default=DEFAULT, help="which kind of sandbox")
    add(
        "--keep", type=float, default=KEEP_S, metavar="S", help="how long a sandbox waits for a client that was cut off"
    )
    add("--tls-cert", type=Path, metavar="FILE", help="a certificate, PEM")
    add("--tls-key", type=Path, metavar="FILE", help="its key, PEM")
    given = parser.parse_args(argv)
    try:
        anyio.run(_main, given)
    except StockadeError as error:
        to_stderr(str(error))
        return error.exit_status
    return 130


async def _main(given: argparse.Namespace) -> None:
    where = Address.of(given.listen)
    if (given.tls_cert is None) != (given.tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together", "give both")
    certificate = (given.tls_cert, given.tls_key) if given.tls_cert else None
    if not is_loopback(where.host) and certificate is None:
        raise UsageError(
            f"{where.host} is beyond this machine, and what travels would be readable", "--tls-cert FILE --tls-key FILE"
        )
    try:
        network = parse_network(given.net)
    except ValueError as error:
        raise UsageError(f"--net: {error}") from None
    allowed = Allowed(
        roots=tuple(endpoint.allowed_root(text) for text in given.allow), network=network, images=given.allow_images
    )
    sessions = Sessions(allowed, own_boxes(given.backend), given.keep)
    at = listen(where.host, where.port)
    if endpoint.ensure_token(given.token_file):
        to_stderr(f"made a token: copy {given.token_file} to the other machine")
    app = App(sessions, owners(endpoint.read_tokens(given.token_file)))
    shown = Address(host=where.host, port=at.getsockname()[1])

    async def until_told(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(until_told, group.cancel_scope)
        await serve(app, sessions, at, certificate, lambda: print(
            f"{'https' if certificate else 'http'}://{shown}", flush=True))  # fmt: skip
        group.cancel_scope.cancel()


if __name__ == "__main__":
    sys.exit(main())
