"""`stockade sandbox serve` and `health`: sandboxes of this machine for another one."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import click

from stockade import changes
from stockade.cli.ui.failures import INTERRUPTED, say
from stockade.cli.ui.interrupt import interruptible
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError
from stockade.core.ports import OnNetwork, Sandbox
from stockade.paths import run_dir
from stockade.run_lock import lock
from stockade.runtime import records, sandboxes
from stockade_sandbox.backends.remote import endpoint
from stockade_sandbox.backends.remote.client import Address
from stockade_sandbox.policy import Policy, parse_network

OpenBox = Callable[[Policy, OnNetwork], AbstractAsyncContextManager[Sandbox]]
KEEP_S = 120.0


@click.command("serve", short_help="Serve sandboxes to other machines.")
@click.option("--listen", required=True, metavar="HOST:PORT", help="Where; port 0 takes any.")
@click.option(
    "--token-file", required=True, type=click.Path(path_type=Path), help="What both sides share; made when absent."
)
@click.option("--allow", multiple=True, metavar="PATH[:MODE]", help="A folder that may be used; MODE is ro or rw.")
@click.option("--net", default="none", metavar="none|open|HOST,...", help="The most network that may be asked for.")
@click.option("--allow-images", is_flag=True, help="Whether another root file system may be asked for.")
@click.option("--sandbox", default="auto", metavar="auto|bubblewrap|docker|podman|gvisor", help="Sandbox backend.")
@click.option("--keep", default=KEEP_S, metavar="S", help="How long a sandbox waits for a client that was cut off.")
def serve(
    listen: str, token_file: Path, allow: tuple[str, ...], net: str, allow_images: bool, sandbox: str, keep: float
) -> int:
    """Serve sandboxes of this machine to whoever has the token: there, --sandbox remote=HOST:PORT.

    Folders are those of this machine, and only those that are allowed here. What travels is authenticated and cannot be
    changed, but it is not encrypted: across networks that are not yours, use a tunnel (docs/remote.md).
    """
    roots = tuple(endpoint.allowed_root(text) for text in allow)
    try:
        network = parse_network(net)
    except ValueError as error:
        raise UsageError(f"--net: {error}") from None
    Address.of(listen)
    if endpoint.ensure_token(token_file):
        say(f"made a token: copy {token_file} to the other machine")
    token = endpoint.read_token(token_file)

    def listening(where: str, near: bool) -> None:
        print(f"serving {where}", flush=True)
        if not near:
            say("what travels is authenticated, but not encrypted", "docs/remote.md has a tunnel")

    async def work() -> int:
        await endpoint.serve(
            listen, token, roots, network, images=allow_images, keep_s=keep, open_box=opener(sandbox),
            listening=listening,
        )  # fmt: skip
        return 0

    status = interruptible(work)
    return INTERRUPTED if status is None else status


def opener(backend: str) -> OpenBox:
    """Sandboxes of that kind, each gone with all that belongs to it when it is left."""

    @asynccontextmanager
    async def open_box(policy: Policy, on_network: OnNetwork) -> AsyncIterator[Sandbox]:
        run_id = records.new_run_id()
        with lock(run_id):
            box = await sandboxes.prepare_sandbox(policy, backend, run_dir(run_id))
            try:
                box.on_network = on_network
                async with box:
                    yield box
            finally:
                changes.discard(sandboxes.reviewer(), box.layers)

    return open_box


@click.command("health", short_help="Check whether another machine serves sandboxes.")
@click.argument("address", metavar="HOST:PORT")
def health(address: str) -> int:
    """Whether sandboxes are served at HOST:PORT. Status 0 when they are, 4 when not; no token is needed."""
    version = anyio.run(endpoint.health, address)
    print(f"{one_line(address)} serves sandboxes, protocol {version}")
    return 0
