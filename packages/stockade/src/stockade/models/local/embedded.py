"""A file as a model: the server that we start for it, ours or a stock one, and the adapter that speaks to it."""

from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread

from stockade.core.errors import ContextExceeded, ModelFailed, ModelUnavailable
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import Model, OnText
from stockade.models.local.catalogue import OUR_TABLE, catalogued
from stockade.models.local.fetch import model_file
from stockade.models.local.gguf import read_gguf
from stockade.models.local.server import EmbeddedServer, program_of
from stockade.models.openai import OpenAIModel, open_served
from stockade.models.openai_request import Dialect
from stockade.models.providers import ModelName, address_of
from stockade.models.servers import has_path
from stockade.models.settings import ModelContext, ModelSettings, OnProgress, silent

MAX_TRIES = 3
_DEATH_PATIENCE_S = 1.0


async def open_file(name: str, context: ModelContext) -> "EmbeddedModel":
    """A model that is a file. It is fetched here when it is missing, so that entering takes no more than loading.

    Raises UsageError for what the user can mend by typing, ModelUnavailable where the file cannot be had or used.
    """
    parameters: tuple[int | None, str]
    full = ModelName(provider=context.provider, name=name)
    path = await model_file(full, context.on_progress, context.settings.folder)
    if checked := context.provider == "embedded":
        label, parameters = name, (catalogued(name).parameters, OUR_TABLE)
    else:
        info = await anyio.to_thread.run_sync(read_gguf, path)
        label, parameters = path.stem or info.name, (info.parameters, info.parameters_source)
    return EmbeddedModel(
        path, label, context.provider, context.settings, trusted=checked, on_progress=context.on_progress,
        parameters=parameters,
    )  # fmt: skip


async def open_started(name: str, context: ModelContext) -> Model:
    """One that runs already; where the name is a path that none of those has, a stock server started from that file."""
    full = ModelName(provider=context.provider, name=name)
    if not full.is_path or (_as_it_runs(context.settings) and await has_path(full, context.environment)):
        return open_served(name, context)
    if context.provider == "llama-server" and not await anyio.Path(full.path).is_file():
        url = address_of(full.provider, context.environment).base_url.removesuffix("/v1")
        what = f"no llama-server at {url} has a model {name}, and there is no such file to start one with"
        raise ModelUnavailable(what, "stockade model list shows what runs; LLAMA_SERVER_URL says where")
    path, program = await program_of(full, context.settings)
    parameters: tuple[int | None, str] = (None, "")
    if program != path:
        header = await anyio.to_thread.run_sync(read_gguf, path)
        parameters = header.parameters, header.parameters_source
    return EmbeddedModel(
        path, path.stem, context.provider, context.settings, trusted=program == path, on_progress=context.on_progress,
        program=program, parameters=parameters,
    )  # fmt: skip


def _as_it_runs(settings: ModelSettings) -> bool:
    """Whether nothing is asked of the server that only one of our own can be given."""
    return not (settings.alone or settings.more or settings.llama_server or settings.ctx_size or settings.threads)


class EmbeddedModel:
    """Implements core.ports.Model. Entering finds or starts the server and waits until the file is loaded.

    `trusted`: the file's hash was compared. `program`: the stock server that has to serve it, or the llamafile itself.
    `parameters` and who says it: of what is known before a server is there.
    A server that dies is started again, and the question that met its death
    is asked again; a question that met three deaths is given up: it may be what kills it.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        provider: str = "embedded",
        settings: ModelSettings | None = None,
        *,
        trusted: bool = False,
        on_progress: OnProgress = silent,
        program: Path | None = None,
        parameters: tuple[int | None, str] = (None, ""),
    ) -> None:
        self._name, self._provider, self._parameters, self._stock = name, provider, parameters, program is not None
        self.server = EmbeddedServer(
            path, name, settings, trusted=trusted, on_progress=on_progress, program=program
        )  # fmt: skip
        self._model: OpenAIModel | None = None
        self._restarting = anyio.Lock()

    @property
    def info(self) -> ModelInfo:
        # A stock server may know of a smaller one: what is in a llamafile cannot be seen before it serves.
        served = self._model.info if self._model else ModelInfo(name=self._name, provider=self._provider)
        window = min(filter(None, (self.server.window, served.context_window)), default=None)
        parameters, source = self._parameters
        if parameters is None:
            parameters, source = served.parameters, served.sources.get("parameters", "")
        ours = not self._stock
        sources = {"context_window": "our server" if window else "", "parameters": source if parameters else "",
                   "sees": "our server, which loads no part of a model that does" if ours else
                   served.sources.get("sees", "")}  # fmt: skip
        return ModelInfo(
            name=self._name, provider=self._provider, context_window=window, parameters=parameters,
            enforces_schema=True,  # llama.cpp makes a grammar of it
            sees=False if ours else served.sees,
            sources={name: reported for name, reported in sources.items() if reported},
        )  # fmt: skip

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        try:
            self._model = await self._connect()
        except BaseException:
            await self.server.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._model is not None:
                await self._model.__aexit__(*error)
        finally:
            await self.server.__aexit__(*error)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model."""
        for attempt in range(1, MAX_TRIES + 1):
            model = self._model or await self._again(None)
            try:
                return await model.ask(request, on_text)
            except ContextExceeded:
                raise
            except ModelFailed as error:
                if model is self._model:
                    await self.server.death_heard(_DEATH_PATIENCE_S)
                    if self.server.died() is None:
                        raise
                if attempt == MAX_TRIES:
                    reason = self.server.died() or error.message
                    raise ModelUnavailable(f"{reason}; it had been started again {attempt - 1} times") from error
                await self._again(model)
        raise AssertionError("the loop above returns or raises")

    async def count(self, request: ModelRequest) -> int | None:
        """See loop.window.CountsTokens."""
        return await self._model.count(request) if self._model is not None else None

    async def _again(self, dead: OpenAIModel | None) -> OpenAIModel:
        """The adapter of a living server. Of several askers the first restarts, the others find it done."""
        async with self._restarting:
            if self._model is not None and self._model is not dead:
                return self._model
            self._model = None
            if dead is not None:
                await dead.__aexit__(None, None, None)
            await self.server.restart()
            self._model = await self._connect()
            return self._model

    async def _connect(self) -> OpenAIModel:
        model = OpenAIModel(
            self.server.base_url, self._name, self.server.api_key, provider=self._provider,
            dialect=Dialect(llama_cpp=True, effort="template"), slot=self.server.slot, died=self.server.died,
        )  # fmt: skip
        return await model.__aenter__()
