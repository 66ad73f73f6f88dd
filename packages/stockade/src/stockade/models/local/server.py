"""The embedded llama.cpp server as its user sees it: leased, shared with other runs, started again when it died."""

import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.fetch import model_file
from stockade.models.local.folder import is_verified, remember_loaded, was_loaded
from stockade.models.local.gguf import GgufInfo, read_gguf
from stockade.models.local.launch_spec import (
    Load,
    NoRoom,
    binary_build,
    embedded_build,
    launch_spec,
    short_of,
    slots_for,
    stock_server,
    usable_cores,
    window_for,
)
from stockade.models.local.server_lease import Lease, in_use, stop_idle, take
from stockade.models.providers import ModelName, parse_name
from stockade.models.settings import ModelSettings, OnProgress, readable, silent

_ATTEMPTS = 5
_NO_ADAPTER = "give --lora the .gguf file of an adapter that was made for this model"


class EmbeddedServer:
    """`async with EmbeddedServer(path, "name", settings) as server`: ready on entering, let go of on leaving.

    A server of the same file and settings is shared with other processes of this user, unless `settings.alone`. After
    its last user it is kept for `settings.keep_warm_s`. `trusted`: the file's hash was compared; of others every weight
    is read through once, for damaged ones load and talk nonsense. `host`, `port`, `api_key` are for a server that this
    entering starts. `program` is the stock server that it has to be, or a llamafile, which is both program and model.
    Raises ModelUnavailable in one line when the file, the memory or the start is at fault. Not for concurrent
    `restart`. `window` is the tokens of one slot, 0 before entering.
    """

    def __init__(
        self,
        path: Path,
        alias: str,
        settings: ModelSettings | None = None,
        *,
        trusted: bool = False,
        on_progress: OnProgress = silent,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        program: Path | None = None,
    ) -> None:
        self._path, self._alias, self._program, self._trusted = path, alias, program, trusted
        self._settings = settings or ModelSettings()
        self._on_progress = on_progress
        self._address: dict[str, Any] = {"host": host, "port": port, "api_key": api_key}
        self._lease: Lease | None = None
        self.window = 0

    def _told(self, name: str) -> Any:
        """By its supervisor; None before there is one."""
        return self._lease.facts.get(name) if self._lease else None

    @property
    def base_url(self) -> str:
        host = self.facts["host"]
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        return f"http://{host}:{self._told('port')}/v1"

    @property
    def api_key(self) -> str:
        return str(self._told("api_key"))

    @property
    def slot(self) -> int | None:
        """The part of the server's cache that is lent to this user alone; None when there are more users than slots."""
        slot: int | None = self._told("slot")
        return slot

    @property
    def pid(self) -> int | None:
        """Of the process that holds the model."""
        pid: int | None = self._told("pid")
        return pid

    @property
    def facts(self) -> dict[str, Any]:
        """What the server was started with: path, alias, window, slots, threads, host, build."""
        return self._told("facts") or {}

    def died(self) -> str | None:
        """A sentence when the server is gone, quoting llama.cpp's last words; None while it lives."""
        return self._lease.died() if self._lease else None

    async def death_heard(self, patience_s: float) -> None:
        """Return when the server's end is known; its connections break a moment before its supervisor tells."""
        if self._lease is not None:
            await self._lease.wait_died(patience_s)

    async def __aenter__(self) -> Self:
        info = await anyio.to_thread.run_sync(_info_of_llamafile if self._is_llamafile() else read_gguf, self._path)
        if adapter := self._settings.more.get("lora"):
            await anyio.to_thread.run_sync(read_gguf, Path(adapter))
        self.window = window_for(info, self._settings.ctx_size)
        binary = self._program or stock_server(self._settings)
        try:
            with anyio.fail_after(self._settings.load_timeout_s):
                await self._take(info, binary)
        except BaseException as error:
            await self._leave()
            if not isinstance(error, TimeoutError):
                raise
            late = f"{self._alias} was not loaded within {self._settings.load_timeout_s:g} s"
            raise ModelUnavailable(late) from None
        if not self._trusted:
            remember_loaded(self._path)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._leave()

    async def restart(self) -> None:
        """A new server with the same settings; or the one that another user has started already.

        Its address changes, unless somebody asked for this one: then it is known to programs that we do not know.
        """
        self._on_progress(f"{self.died() or 'the embedded server'}; starting it again", 0, 0)
        if self.facts.get("asked_port"):
            self._address = {"host": self.facts["host"], "port": self._told("port"), "api_key": self.api_key}
        await self._leave()
        await self.__aenter__()

    def _is_llamafile(self) -> bool:
        return self._program == self._path

    async def _take(self, info: GgufInfo, binary: Path | None) -> None:
        for _ in range(_ATTEMPTS):
            self._lease = await self._lent(info, binary)
            if self._lease.started:
                self._on_progress(f"loading {self._alias} ({readable(info.size_bytes)})", 0, 0)
            try:
                if await self._lease.ready():
                    return
            except ModelUnavailable as error:
                raise self._unloadable(error.message) from None
            await self._leave()
        raise ModelUnavailable(f"{self._alias} was ended {_ATTEMPTS} times while it was loaded")

    async def _lent(self, info: GgufInfo, binary: Path | None) -> Lease:
        """Of a server of our own where that was asked for and there is room; else of the one that is shared."""

        async def lent(alone: bool) -> Lease:
            key, spec = self._key(binary, alone), partial(self._spec, info, binary, alone)
            lend = partial(take, self._alias, key, self._settings.keep_warm_s, spec, alone=alone)
            return await anyio.to_thread.run_sync(lend)

        if self._settings.alone:
            try:
                return await lent(True)
            except NoRoom as error:
                short = error.message
        lease = await lent(False)
        if self._settings.alone:
            message = "no memory for a server of this run alone: runs beside it may change what --seed gives"
            self._on_progress(f"{message} ({short})", 0, 0)
        return lease

    def _unloadable(self, reason: str) -> ModelUnavailable:
        """Who is at fault when llama.cpp said `reason` while it loaded: the model or the adapter."""
        adapter = self._settings.more.get("lora")
        if adapter and re.search(r"lora|adapter", reason, re.IGNORECASE):
            return ModelUnavailable(f"the LoRA adapter {adapter} cannot be loaded: {reason}", _NO_ADAPTER)
        if (program := self._program or stock_server(self._settings)) is not None:
            message = f"{program} does not serve{'' if self._is_llamafile() else f' {self._path}'}: {reason}"
            return ModelUnavailable(message, "start it by hand to see what it says")
        return ModelUnavailable(f"{self._path} cannot be loaded: {reason}", "give the path of a whole .gguf file")

    async def _leave(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.leave()

    def _key(self, binary: Path | None, alone: bool) -> str:
        """What users of one server have in common: the very file, how it is loaded, and by which build."""
        try:
            status = self._path.stat()
        except OSError as error:
            raise ModelUnavailable(f"cannot read the model file {self._path}: {error.strerror}") from None
        settings = self._settings
        same = [
            os.path.realpath(self._path), status.st_size, status.st_mtime_ns, self.window, settings.slots,
            settings.threads, settings.gpu_layers, settings.more, binary_build(binary) if binary else embedded_build(),
            alone,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:16]

    def _spec(self, info: GgufInfo, binary: Path | None, alone: bool, folder: Path) -> dict[str, Any]:
        """What to start. Where memory is short, servers that nobody uses make room first."""
        if short_of(info, self.window, 1) is not None:
            stop_idle(folder)
        settings = self._settings
        # What a conversation of a llamafile takes is not known.
        requested = 1 if alone else settings.slots or (1 if self._is_llamafile() else None)
        slots = slots_for(info, self.window, requested)
        if (short := short_of(info, self.window, slots)) is not None:
            raise short
        load = Load(
            path=os.path.realpath(self._path), alias=self._alias, window=self.window, slots=slots, more=settings.more,
            threads=settings.threads or usable_cores(),
            gpu_layers=-1 if settings.gpu_layers is None else settings.gpu_layers,
            check_tensors=not self._trusted and not was_loaded(self._path),
            **{**self._address, "api_key": self._address["api_key"] or secrets.token_urlsafe(24)},
        )  # fmt: skip
        return launch_spec(load, binary)


def _info_of_llamafile(path: Path) -> GgufInfo:
    """What can be known of it from outside."""
    try:
        return GgufInfo(path=str(path), size_bytes=path.stat().st_size, architecture="")
    except OSError as error:
        raise ModelUnavailable(f"cannot read the llamafile {path}: {error.strerror}") from None


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
    name, program = parse_name(spec), None
    if name.is_path:
        path, program = await program_of(name, settings)
    elif name.provider in ("embedded", "gguf"):
        path = await model_file(name, on_progress, settings.folder)
    else:
        what = "embedded/NAME, gguf/PATH, llamafile//PATH, or llama-server//PATH.gguf for the llama-server on PATH"
        raise UsageError(f"'{spec}' is not a model that is served from here", what)
    label = name.name if name.provider == "embedded" else path.stem
    if api_key is not None and (not api_key.isascii() or not api_key.isprintable() or " " in api_key or not api_key):
        raise UsageError("--api-key: a key is printable, without spaces")
    requested = api_key or secrets.token_urlsafe(24)
    await anyio.to_thread.run_sync(_make_room, path, host, port)
    server = EmbeddedServer(
        path, label, settings, trusted=program == path or is_verified(path, ""), on_progress=on_progress, host=host,
        port=port, api_key=requested, program=program,
    )  # fmt: skip
    async with server:
        if server.api_key != requested:  # started meanwhile by another
            raise UsageError(f"{label} is being served at {server.base_url} already", "use that, or end its users")
        yield server


async def program_of(name: ModelName, settings: ModelSettings) -> tuple[Path, Path]:
    """The file of `llamafile//PATH` or `llama-server//PATH`, and the program that serves it: a llamafile is both.

    UsageError where one of them is not there.
    """
    path = name.path
    if not await anyio.Path(path).is_file():
        raise UsageError(f"there is no file {path}", f"write {name.provider}//PATH/TO/FILE")
    program = path if name.provider == "llamafile" else stock_server(settings, on_path=True)
    if program is None:
        hint = f"install one, name one with --llama-server, or use gguf/{path}: the built-in server"
        raise UsageError("there is no llama-server on PATH, and none runs with that file", hint)
    return path, program


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
