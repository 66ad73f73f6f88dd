"""`stockade model serve`: the embedded server at an address and with a key that other programs are told."""

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from stockade.core.errors import UsageError
from stockade.models.local.fetch import fetch
from stockade.models.local.folder import is_verified
from stockade.models.local.listing import catalogued
from stockade.models.local.server import EmbeddedServer
from stockade.models.local.server_lease import in_use
from stockade.models.providers import parse_name
from stockade.models.settings import ModelSettings, OnProgress, silent


async def file_of(spec: str, settings: ModelSettings, on_progress: OnProgress = silent) -> tuple[Path, str]:
    """The file of `embedded/NAME` or `gguf/PATH`, fetched when it is missing, and what to call it."""
    name = parse_name(spec)
    if name.provider == "embedded":
        return await fetch(catalogued(name.name), on_progress, settings.folder), name.name
    if name.provider != "gguf":
        raise UsageError(f"'{spec}' is not a model of the embedded server", "name an embedded/ or gguf/ model")
    path = await anyio.Path(name.name).expanduser()
    return Path(path), path.stem


@asynccontextmanager
async def served(
    spec: str,
    settings: ModelSettings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str | None = None,
    on_progress: OnProgress = silent,
) -> AsyncIterator[EmbeddedServer]:
    """The server of this model at this address; runs of this user share it. `port` 0 is any.

    A server that runs elsewhere makes room when nobody uses it; UsageError when somebody does, or the port is taken.
    """
    path, label = await file_of(spec, settings, on_progress)
    if api_key is not None and (not api_key.isascii() or not api_key.isprintable() or " " in api_key or not api_key):
        raise UsageError("--api-key: a key is printable, without spaces")
    requested = api_key or secrets.token_urlsafe(24)
    await anyio.to_thread.run_sync(_make_room, path, host, port)
    server = EmbeddedServer(
        path, label, settings, trusted=is_verified(path, ""), on_progress=on_progress, host=host, port=port,
        api_key=requested,
    )  # fmt: skip
    async with server:
        if server.api_key != requested:  # started meanwhile by another
            raise UsageError(f"{label} is being served at {server.base_url} already", "use that, or end its users")
        yield server


def _make_room(path: Path, host: str, port: int) -> None:
    if server := in_use(path):
        message = f"{server.alias} is being served at {server.address} already, and in use"
        raise UsageError(message, "wait until its users have ended, or end them")
    try:
        with socket.create_server((host, port)):
            pass
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot listen on {host}:{port}: {cause}", "--port 0 takes a free one") from None


async def until_it_dies(server: EmbeddedServer) -> None:
    """Return when the server is gone."""
    while server.died() is None:
        await server.death_heard(3600)
