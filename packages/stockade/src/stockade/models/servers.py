"""The model servers that run here, or where variables say: which of them answers, and what each has.

Asked side by side and for a short time, on the ports that they usually have. What they say is data from outside.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anyio

from stockade.core.data import Data
from stockade.core.errors import ModelFailed, ModelUnavailable, UsageError
from stockade.core.text import one_line
from stockade.models.http import Client
from stockade.models.providers import PROVIDERS, Address, ModelName, address_of, is_near
from stockade.models.replies import as_count, as_dict, as_text, parse_size_label, parsed

CONNECT_S = 1.0
"""To a server of this machine or the network around it. Nobody there says so at once, mostly."""
ANSWER_S = 2.0
"""A server that reads a prompt on every core answers late."""
HOSTED_S = 10.0
_MAX_LIST_BYTES = 4 << 20
LOCAL = ("llama-server", "vllm", "lm-studio", "ollama")
"""Those that are asked, best first. A llamafile is asked as the llama-server that it is."""
_PATHS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "lm-studio": (("/api/v0/models", "data", "id"), ("/v1/models", "data", "id")),
    "ollama": (("/api/tags", "models", "name"), ("/v1/models", "data", "id")),
}
"""Where each tells what it has, the key of the rows, and that of their names; the first that has some counts."""
_OPENAI = (("/v1/models", "data", "id"),)
_OTHER_KINDS = re.compile(
    r"\bclip\b|bert\b|embed|rerank|\bbge-|\be5-|\bgte-|minilm|\bparaphrase-|t5encoder|whisper|wavtokenizer|\bmmproj",
    re.IGNORECASE,
)
"""In names and architectures of models that give no answers: they compare texts, or read pictures and sounds."""
_IN_THE_CLOUD = re.compile(r"[:-]cloud$")
"""Ollama lists these beside its own, and runs them elsewhere: https://docs.ollama.com/cloud."""


class ListedModel(Data):
    """One model of a server. `spec` is how it is named here, `id` how the server names it. `talks`: it gives answers.

    `elsewhere`: the server hands what it is asked to another one. `window` in tokens, as it is loaded now.
    """

    spec: str
    id: str
    loaded: bool = False
    talks: bool = True
    elsewhere: bool = False
    window: int | None = None
    parameters: int | None = None
    size_bytes: int | None = None


class ModelServer(Data):
    """`named`: a variable says where it is. `problem`: why it tells of no models, in a few words; `running`: somebody
    answers there.
    """

    provider: str
    url: str
    named: bool = False
    running: bool = True
    models: tuple[ListedModel, ...] = ()
    problem: str = ""


async def ask_servers(
    environment: Mapping[str, str] = os.environ, providers: Sequence[str] = LOCAL
) -> tuple[ModelServer, ...]:
    """What each of these says, in this order; one whose address is none says so too."""
    result: dict[str, ModelServer] = {}

    async def ask(provider: str) -> None:
        result[provider] = await ask_server(provider, environment)

    async with anyio.create_task_group() as group:
        for provider in providers:
            group.start_soon(ask, provider)
    return tuple(result[provider] for provider in providers)


async def ask_server(provider: str, environment: Mapping[str, str] = os.environ) -> ModelServer:
    """What a server says that it has; those that it has loaded come first."""
    named = any(environment.get(variable) for variable in PROVIDERS[provider].url_variables)
    try:
        address = address_of(provider, environment)
    except UsageError as error:
        return ModelServer(provider=provider, url="", named=named, running=False, problem=error.message)
    hosted, far = PROVIDERS[provider].key != "never", not is_near(address.base_url)
    url = address.base_url if hosted else address.base_url.removesuffix("/v1")
    server = ModelServer(provider=provider, url=url, named=named)
    limit, connect = (HOSTED_S, HOSTED_S) if far else (ANSWER_S, CONNECT_S)
    headers = {**address.headers, **({"anthropic-version": "2023-06-01"} if provider == "anthropic" else {})}
    client = Client(url, headers, connect_s=connect, answer_s=limit)
    try:
        with anyio.fail_after(limit):
            async with client:
                rows = await _rows(client, provider, address)
    except TimeoutError:
        return server.model_copy(update={"problem": f"it did not answer within {limit:g} s"})
    except _Refusal as error:
        return server.model_copy(update={"problem": error.message})
    except ModelUnavailable as error:
        reason = error.message.removeprefix(f"no model server at {client.server}: ")
        return server.model_copy(update={"running": False, "problem": reason})
    except ModelFailed as error:
        return server.model_copy(update={"problem": error.message})
    models = sorted((_listed(provider, row, alone=len(rows) == 1) for row in rows), key=lambda model: not model.loaded)
    return server.model_copy(update={"models": tuple(models), "problem": "" if models else "it has no model"})


class _Refusal(ModelFailed):
    """It runs and tells nothing."""


async def _rows(client: Client, provider: str, address: Address) -> list[dict[str, Any]]:
    """Of the first list that has some, each with its `name`; Ollama's with what it has in memory."""
    root = address.base_url.removesuffix("/v1")
    hosted = PROVIDERS[provider].key != "never"
    theirs = provider == "anthropic"
    places = (("", "data", "id"),) if hosted else _PATHS.get(provider, _OPENAI)
    for path, key, name_key in places:
        hosted_at = f"{root}/v1/models?limit=1000" if theirs else f"{address.base_url}/models{address.query}"
        url = hosted_at if hosted else root + path
        if rows := _named(await _told(client, url, last=path == places[-1][0]), key, name_key):
            break
    if provider == "ollama" and rows:
        loaded = {row["name"]: row for row in _named(await _told(client, f"{root}/api/ps"), "models", "name")}
        rows = [{**loaded.pop(row["name"], {}), **row, "state": "loaded"} if row["name"] in loaded else row
                for row in rows] + [{**row, "state": "loaded"} for row in loaded.values()]  # fmt: skip
    return rows


async def _told(client: Client, url: str, *, last: bool = False) -> dict[str, Any]:
    """The object there. `last`: where there is none, that is why nothing is known."""
    async with client.asked("GET", url) as response:
        said = await response.whole(_MAX_LIST_BYTES)
    value = parsed(said)
    if response.status in (401, 403):
        raise _Refusal(f"it refused the key ({response.status})")
    if response.status == 503:
        raise _Refusal("it is still loading its model (503)")
    if last and (response.status != 200 or not isinstance(value, dict)):
        raise _Refusal(f"it lists no models: {client.server} is no model server ({response.status})")
    return as_dict(value) if response.status == 200 else {}


def _named(told: Mapping[str, Any], key: str, name_key: str) -> list[dict[str, Any]]:
    """The rows with a name that can be shown and typed."""
    rows = told.get(key)
    named = [(row.get(name_key), row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [{**row, "name": name} for name, row in named if isinstance(name, str) and name and name.isprintable()]


def _listed(provider: str, row: Mapping[str, Any], *, alone: bool) -> ListedModel:
    name = str(row["name"]).removeprefix("models/" if PROVIDERS[provider].key != "never" else "")  # as Google lists it
    meta, details = as_dict(row.get("meta")), as_dict(row.get("details"))
    windows = (row.get("loaded_context_length"), row.get("context_length"), row.get("max_model_len"),
               row.get("max_input_tokens"), meta.get("n_ctx"))  # fmt: skip
    size = parse_size_label(as_text(details.get("parameter_size")))
    states = (row.get("state"), as_dict(row.get("status")).get("value"))
    return ListedModel(
        spec=_spec(provider, name, alone=alone),
        id=name,
        loaded="loaded" in states or (provider in ("llama-server", "vllm") and states == (None, None)),
        talks=_talks(provider, row),
        elsewhere=provider == "ollama" and bool(row.get("remote_host") or _IN_THE_CLOUD.search(name)),
        window=next(filter(None, map(as_count, windows)), None),
        parameters=as_count(meta.get("n_params")) or size,
        size_bytes=as_count(row.get("size")) or as_count(meta.get("size")) or None,
    )


def _spec(provider: str, id_: str, *, alone: bool) -> str:
    """A name for what the server calls `id_`. A llama-server that has one model calls it by the path or address of its
    file, and takes any other name: the last part is one that can be read and typed.
    """
    path = provider == "llama-server" and (ModelName(provider=provider, name=id_).is_path or "://" in id_)
    return f"{provider}/{last_part(id_) if path and alone else id_}"


def last_part(id_: str) -> str:
    """`qwen.gguf` of `/models/qwen.gguf`."""
    return id_.rstrip("/").rpartition("/")[2] or "model"


def _talks(provider: str, row: Mapping[str, Any]) -> bool:
    """Whether it gives answers: by the kind that LM Studio says, else by its family and the last part of its name."""
    if provider == "lm-studio" and "type" in row:
        return row["type"] in ("llm", "vlm")
    return not gives_no_answers(as_text(as_dict(row.get("details")).get("family")), last_part(str(row["name"])))


def gives_no_answers(kind: str, name: str) -> bool:
    """By the words for embeddings, rerankers and the like in a model's architecture and name."""
    return _OTHER_KINDS.search(f"{kind} {name}") is not None


def usable(server: ModelServer) -> list[ListedModel]:
    """Those to talk to, on that server itself."""
    return [model for model in server.models if model.talks and not model.elsewhere]


def keys_found(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Providers elsewhere that can be asked from here, and the variable that holds the key, or the address where none
    is needed.
    """
    result = {}
    for provider, row in PROVIDERS.items():
        key = next((name for name in row.key_variables if environment.get(name)), None)
        where = next((name for name in row.url_variables if environment.get(name)), None)
        if row.key != "never" and (row.url or where) and (key or where):
            result[provider] = key or where or ""
    return result


async def has_path(name: ModelName, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the server that runs calls one of its models by this very path."""
    return any(model.id == name.name for model in (await ask_server(name.provider, environment)).models)


async def find_id(id_: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """PROVIDER/NAME of the first server that has a model by that name, as it or as we spell it."""
    for server in await ask_servers(environment):
        for model in server.models:
            if id_ in (model.id, last_part(model.id)):
                return model.spec
    return None


def nearest(id_: str, ids: Iterable[str]) -> str | None:
    """The most similar of these names, upper and lower case alike. One that has it behind a slash, or begins with
    it, goes before one that is spelled like it. None where none is.
    """
    known, wanted = {one.lower(): one for one in ids}, id_.lower()
    alike = [one for one in known if last_part(one) == wanted] or [one for one in known if one.startswith(wanted)]
    alike = alike or difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    return known[alike[0]] if alike else None


def shown(server: ModelServer) -> str:
    """What is wrong with it, in a line."""
    return one_line(f"{server.provider} at {server.url or 'no address'}: {server.problem}", 300)
