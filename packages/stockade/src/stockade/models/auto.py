"""What `auto` stands for: what a local server has, else the best file that can run here now, else ours.

What cannot run, or gives no answers, is passed over, and the line that says what was chosen says that too.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.catalogue import CATALOGUE, DEFAULT
from stockade.models.local.folder import ModelEntry, is_verified, list_models, models_folder
from stockade.models.local.gguf import read_gguf
from stockade.models.local.launch_spec import available_bytes, fits, short_of, window_for
from stockade.models.local.server_lease import running
from stockade.models.providers import AUTO
from stockade.models.servers import ListedModel, ask_servers, find_id, gives_no_answers, shown, usable
from stockade.models.settings import ModelChoice, ModelSettings, readable

_BETTER = "a stronger one: stockade model use, or --model PROVIDER/NAME (docs/models.md)"


async def choose_model(
    settings: ModelSettings, environment: Mapping[str, str] = os.environ, wanted: str = AUTO
) -> ModelChoice:
    """A model on a local server that answers at once, else the file of most parameters that can run, else ours.

    ModelUnavailable when not even ours could be loaded: it is not fetched for nothing. `wanted` is a name without a
    provider: the model that a local server calls so, or the name again where none does.
    """
    if wanted != AUTO:
        spec = await find_id(wanted, environment)
        return ModelChoice(spec=spec or wanted, note=f"using {spec}, which its server calls {wanted}" if spec else None)
    found, url, passed = await _running(environment)
    if found is not None:
        what = "it is what {} has running" if found.loaded else "{} has it"
        return ModelChoice(spec=found.spec, note=f"using {found.spec}: {what.format(url)}; {_BETTER}")
    choice = await anyio.to_thread.run_sync(_of_files, settings)
    return choice.model_copy(update={"note": ". ".join((*passed, choice.note or ""))})


def _of_files(settings: ModelSettings) -> ModelChoice:
    """Blocking."""
    folder = settings.folder or models_folder()
    answering = [entry for entry in list_models(folder) if entry.here and _answers(entry)]
    loaded = _loaded_now()
    passed: list[str] = []
    for entry in sorted(answering, key=lambda entry: (entry.parameters or 0, entry.size_bytes), reverse=True):
        reason = None if os.path.realpath(entry.path) in loaded else _hindrance(entry, settings.ctx_size)
        if reason is None:
            best = "the most capable of the models on this machine"
            note = f"using {entry.name}: {best}{f' that can run now ({_first(passed)})' if passed else ''}; {_BETTER}"
            return ModelChoice(spec=entry.name, note=note)
        passed.append(reason)
    return _ours(folder, passed)


def _ours(folder: Path, passed: list[str]) -> ModelChoice:
    """The default, when nothing else can be used."""
    default = CATALOGUE[DEFAULT]
    here, free = is_verified(folder / default.file, default.sha256), available_bytes()
    if here or (free is not None and not fits(default.size_bytes, free)):
        room = f"the {readable(free or 0)} of memory that are free"
        reason = _first(passed) or f"embedded/{DEFAULT} takes more than {room}"
        raise ModelUnavailable(f"no model can run here now: {reason}", f"end other programs, or {_BETTER}")
    missing = f"none that is here can run now ({_first(passed)})" if passed else "no model was pulled"
    fetched = f"it is fetched once ({readable(default.size_bytes)}, {default.licence})"
    return ModelChoice(
        spec=f"embedded/{DEFAULT}",
        note=f"using embedded/{DEFAULT}: no model server is running and {missing}; {fetched}; {_BETTER}",
    )


def _first(passed: list[str]) -> str:
    """The largest of those that were passed over, and how many there are besides."""
    return f"{passed[0]}{f'; and {len(passed) - 1} more' if len(passed) > 1 else ''}" if passed else ""


def _hindrance(entry: ModelEntry, wanted: int | None) -> str | None:
    """Why it cannot be loaded now; `wanted` is the window that was asked for."""
    name = Path(entry.path).name
    try:
        info = read_gguf(Path(entry.path))
        short = short_of(info, window_for(info, wanted), 1)
    except ModelUnavailable as error:
        return error.message if name in error.message else f"{name}: {error.message}"
    except UsageError as error:
        return f"{name}: {error.message}"
    return short.message if short else None


def _loaded_now() -> set[str]:
    """Files that servers of ours hold in memory: those fit, whatever is free beside them."""
    with suppress(ModelUnavailable):
        return {server.path for server in running()}
    return set()


def _answers(entry: ModelEntry) -> bool:
    """Whether it is one to talk to. smollm2 is there to try the plumbing: nobody who did not name it wants it."""
    if entry.name == "embedded/smollm2":
        return False
    return not gives_no_answers(entry.architecture, entry.name.rpartition("/")[2])


async def _running(environment: Mapping[str, str]) -> tuple[ListedModel | None, str, list[str]]:
    """The model that a local server has loaded, else its first; where that runs; and what was passed over."""
    passed: list[str] = []
    for server in await ask_servers(environment):
        if found := usable(server):
            return found[0], server.url, passed
        if server.problem and (server.named or server.running):
            passed.append(shown(server))
    return None, "", passed
