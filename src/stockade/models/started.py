"""A llamafile, or a stock `llama-server` with a GGUF file, started by us for its user and ended with its last one.

The keeper of the embedded server keeps these too (keeper.py): they are found again by later commands, and nothing is
left when we are killed.
"""

import hashlib
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import OnText
from stockade.models.openai_http import OpenAIModel
from stockade.models.orders import Load, binary_build, order_for, usable_cores
from stockade.models.payload import Dialect
from stockade.models.progress import OnProgress, silent
from stockade.models.settings import DEFAULT_WINDOW, ModelSettings
from stockade.models.transport import HttpTimes
from stockade.models.warm import Lease, take

_ATTEMPTS = 3
_HINT = "start it by hand to see what it says"


class StartedModel:
    """Implements core.ports.Model and loop.window.CountsTokens. `program` None: the file is a program itself."""

    def __init__(
        self,
        path: Path,
        provider: str,
        program: Path | None = None,
        settings: ModelSettings | None = None,
        on_progress: OnProgress = silent,
    ) -> None:
        self._path, self._provider, self._program = path.absolute(), provider, program
        self._settings = settings or ModelSettings()
        self._on_progress = on_progress
        self._lease: Lease | None = None
        self._model: OpenAIModel | None = None
        if not self._path.is_file():
            raise UsageError(f"there is no file {self._path}", f"write {provider}//PATH/TO/FILE")

    @property
    def info(self) -> ModelInfo:
        found = self._model.info if self._model else None
        window = found.context_window if found else None
        return ModelInfo(name=str(self._path), provider=self._provider, context_window=window)

    async def __aenter__(self) -> Self:
        try:
            with anyio.fail_after(self._settings.load_timeout_s):
                await self._take()
            self._model = await self._connect()
        except TimeoutError:
            await self._leave()
            raise ModelUnavailable(
                f"{self._path} was not ready within {self._settings.load_timeout_s:g} s", _HINT
            ) from None
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._model is not None:
                await self._model.__aexit__(kind, error, trace)
        finally:
            await self._leave()

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model."""
        assert self._model is not None, "enter the model first"
        return await self._model.ask(request, on_text)

    async def count(self, request: ModelRequest) -> int | None:
        """See loop.window.CountsTokens."""
        assert self._model is not None, "enter the model first"
        return await self._model.count(request)

    async def _take(self) -> None:
        load = self._load()
        for _ in range(_ATTEMPTS):
            # Which port is free may change before the server has it: the order is made anew each time.
            self._lease = await anyio.to_thread.run_sync(
                take, load.alias, self._key(load), self._settings.keep_warm_s, lambda _folder: self._order(load)
            )
            if self._lease.started:
                self._on_progress(f"starting {self._program or self._path}", 0, 0)
            try:
                if await self._lease.ready():
                    return
            except ModelUnavailable as error:
                raise ModelUnavailable(
                    f"{self._program or self._path} does not serve: {error.message}", _HINT
                ) from None
            await self._leave()
        raise ModelUnavailable(f"{self._path} was ended {_ATTEMPTS} times while it was started")

    def _load(self) -> Load:
        settings = self._settings
        return Load(
            path=os.path.realpath(self._path), alias=self._path.stem, window=settings.ctx_size or DEFAULT_WINDOW,
            slots=settings.slots or 1, threads=settings.threads or usable_cores(),
            gpu_layers=-1 if settings.gpu_layers is None else settings.gpu_layers, api_key=secrets.token_urlsafe(24),
            log_file=str(settings.log_file.absolute()) if settings.log_file else None, more=settings.more,
        )  # fmt: skip

    def _order(self, load: Load) -> dict[str, Any]:
        """A llamafile takes what llama-server takes. It begins as a shell script does, on purpose: `sh` starts it
        where the kernel knows nothing of its format."""
        order = order_for(load, self._program or self._path)
        if self._program is None:
            order["argv"] = ["/bin/sh", str(self._path), "--server", *order["argv"][3:]]
            order["argv"] = _without(order["argv"], "--alias", 2)
        return order

    def _key(self, load: Load) -> str:
        same = [binary_build(self._program or self._path), load.model_dump_json(exclude={"api_key"})]
        return hashlib.sha256("\n".join(same).encode()).hexdigest()[:16]

    async def _connect(self) -> OpenAIModel:
        assert self._lease is not None
        facts = self._lease.facts
        slot = self._settings.slot if self._settings.slot is not None else facts.get("slot")
        model = OpenAIModel(
            f"http://127.0.0.1:{facts['port']}/v1", self._path.stem, str(facts["api_key"]), provider=self._provider,
            dialect=Dialect(llama_cpp=True), slot=slot if isinstance(slot, int) else None,
            times=HttpTimes(idle_s=self._settings.idle_timeout_s), died=self._lease.died,
        )  # fmt: skip
        return await model.__aenter__()

    async def _leave(self) -> None:
        lease, self._lease = self._lease, None
        self._model = None
        if lease is not None:
            await lease.leave()


def _without(argv: list[str], flag: str, count: int) -> list[str]:
    """`argv` but for a flag and what belongs to it."""
    if flag not in argv:
        return argv
    at = argv.index(flag)
    return argv[:at] + argv[at + count :]
