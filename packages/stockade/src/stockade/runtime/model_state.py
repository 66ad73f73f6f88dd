"""Whether a model would answer now, as far as can be told without starting or paying for anything."""

import os
from typing import Literal

from anyio import to_thread

from stockade.core.data import Data
from stockade.core.errors import StockadeError
from stockade.models import servers
from stockade.models.local import folder, server_lease
from stockade.models.providers import PROVIDERS, ModelName, parse_name
from stockade.models.settings import ModelSettings
from stockade.runtime.models import chosen_by

_OURS = ("embedded", "gguf")


class ModelState(Data):
    """`state`: it is `loaded` in memory; it is `here`, and loaded when asked; `absent`: its file, or its server's
    knowledge of it, is not; its server is `unreachable`; `hosted` elsewhere, with a key set here; `unknown`. `detail`
    says more in a few words. `window` in tokens; `size_bytes` of the weights.
    """

    name: str
    state: Literal["loaded", "here", "absent", "unreachable", "hosted", "unknown"]
    detail: str = ""
    window: int | None = None
    parameters: int | None = None
    size_bytes: int | None = None


async def model_state(spec: str) -> ModelState:
    """Of PROVIDER/NAME; of `auto` that of the one that it would be now. A server near here is asked what it has; one
    elsewhere is not.
    """
    try:
        chosen = (await chosen_by(spec, ModelSettings(), os.environ)).spec
    except StockadeError as error:
        return ModelState(name=spec, state="unknown", detail=error.message)
    found = await _of_name(chosen)
    if chosen == spec:
        return found
    return found.model_copy(update={"name": spec, "detail": f"{chosen}{found.detail and f': {found.detail}'}"})


async def _of_name(spec: str) -> ModelState:
    try:
        name = parse_name(spec)
        if name.provider in _OURS:
            return await to_thread.run_sync(_of_file, spec)
        if name.provider in servers.LOCAL and not name.is_path:
            return await _of_server(spec, name)
    except StockadeError as error:
        return ModelState(name=spec, state="unknown", detail=error.message)
    keys = servers.keys_found(os.environ)
    if name.provider in keys:
        return ModelState(name=spec, state="hosted", detail=f"{keys[name.provider]} is set")
    variables = " or ".join(PROVIDERS[name.provider].key_variables) if name.provider in PROVIDERS else ""
    return ModelState(name=spec, state="unknown", detail=f"{variables} is not set" if variables else "")


def _of_file(spec: str) -> ModelState:
    entry = folder.model_info(spec)
    known = {"window": entry.window, "parameters": entry.parameters, "size_bytes": entry.size_bytes}
    if not entry.here or entry.problem:
        detail = entry.problem or f"stockade model pull {spec}"
        return ModelState(name=spec, state="absent", detail=detail, **known)
    real = os.path.realpath(entry.path)
    running = next((one for one in server_lease.running() if one.path == real), None)
    if running is None:
        return ModelState(name=spec, state="here", detail="its file is verified" if entry.verified else "", **known)
    users = f"{running.users} use it" if running.users else "nobody uses it"
    return ModelState(name=spec, state="loaded", detail=users, **{**known, "window": running.window})


async def _of_server(spec: str, name: ModelName) -> ModelState:
    server = await servers.ask_server(name.provider)
    if not server.models:
        state: Literal["unknown", "unreachable"] = "unknown" if server.running else "unreachable"
        return ModelState(name=spec, state=state, detail=servers.shown(server))
    found = next((one for one in server.models if name.name in (one.id, servers.last_part(one.id))), None)
    if found is None:
        return ModelState(name=spec, state="absent", detail=f"the server at {server.url} has no such model")
    known = {"window": found.window, "parameters": found.parameters, "size_bytes": found.size_bytes}
    where = f"at {server.url}" + (", which hands it on elsewhere" if found.elsewhere else "")
    return ModelState(name=spec, state="loaded" if found.loaded else "here", detail=where, **known)
