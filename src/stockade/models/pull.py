"""`stockade model pull`: a model from the catalogue, the hub, Ollama's registry, an address, a file or a llamafile."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.catalogue import CATALOGUE, CatalogueModel
from stockade.models.fetch import fetch, in_thread
from stockade.models.gguf import read_gguf
from stockade.models.hub import HubName, find_file
from stockade.models.llamafile import extract_gguf, is_llamafile
from stockade.models.model_cache import (
    forget,
    is_verified,
    make_folder,
    models_folder,
    remember_origin,
    remember_verified,
    sha256_of,
)
from stockade.models.progress import OnProgress, silent
from stockade.models.registry import find_layer
from stockade.models.sources import NotReached, size_at

FORMS = "a name of the catalogue, hf:OWNER/REPO[/FILE], ollama:NAME:TAG, https://..., or a .gguf or llamafile on disk"


async def pull(
    reference: str, on_progress: OnProgress = silent, folder: Path | None = None, sha256: str = ""
) -> tuple[str, Path]:
    """Fetch what `reference` names (see FORMS): its model name and its file, whole, its hash compared if it is known.

    `sha256` is what the person expects. A cut download is continued next time. UsageError and ModelUnavailable say in
    one line why not; what is not a usable model file is not kept.
    """
    folder = folder or models_folder()
    sha256 = sha256.lower()
    if sha256 and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise UsageError(f"not a sha256: {sha256!r}", "it has 64 hexadecimal digits")
    name = reference.removeprefix("embedded/")
    if name in CATALOGUE:
        model = CATALOGUE[name]
        if sha256 and sha256 != model.sha256:
            raise UsageError(f"{name} has the sha256 {model.sha256}", "leave --sha256 away")
        return f"embedded/{name}", await fetch(model, on_progress, folder)
    model = await _described(reference, sha256)
    if sha256 and model.sha256 != sha256:
        raise ModelUnavailable(f"{model.sources[0]} has the sha256 {model.sha256}, not {sha256}", "nothing was fetched")
    path = await _fetched(model, on_progress, folder)
    remember_origin(path, model.sources[0], model.licence)
    return f"gguf/{path}", path


async def _described(reference: str, sha256: str) -> CatalogueModel:
    """What is to be fetched, as an entry of the catalogue would say it."""
    kind, _, rest = reference.partition(":")
    if kind == "hf" or re.match(r"https://(huggingface\.co|hf\.co)/", reference):
        return await find_file(HubName.parse(rest if kind == "hf" else reference))
    if kind == "ollama":
        return await find_layer(rest)
    if kind in ("https", "http"):
        address = urlsplit(reference)
        # Two addresses may end in the same name.
        place = f"{address.hostname or ''}-{hashlib.sha256(reference.encode()).hexdigest()[:8]}"
        path = (place, unquote(address.path.rpartition("/")[2]))
        model = CatalogueModel.stranger(*path, size_bytes=0, sha256=sha256, source=reference)
        try:
            return model.model_copy(update={"size_bytes": await size_at(reference)})
        except NotReached as error:
            raise ModelUnavailable(f"cannot fetch {reference}: {error.message}") from None
    return _on_disk(reference, sha256)


def _on_disk(reference: str, sha256: str) -> CatalogueModel:
    file = Path(reference).expanduser().absolute()
    if not file.is_file():
        raise UsageError(f"there is no model '{reference}'", f"give {FORMS}")
    size = file.stat().st_size
    return CatalogueModel.stranger("files", file.name, size_bytes=size, sha256=sha256, source=f"file:{file}")


async def _fetched(model: CatalogueModel, on_progress: OnProgress, folder: Path) -> Path:
    """The GGUF file, out of its llamafile where it comes in one. What is none is removed."""
    target = (folder / model.file).with_suffix(".gguf")
    if model.file != os.fspath(target.relative_to(folder)) and is_verified(target, ""):
        return target
    path = await fetch(model, on_progress, folder)
    try:
        if await anyio.to_thread.run_sync(is_llamafile, path):
            await _extracted(path, target, on_progress)
            forget(path)
            path = target
        await anyio.to_thread.run_sync(read_gguf, path)
    except ModelUnavailable:
        forget(path)
        raise
    return path


async def _extracted(path: Path, target: Path, on_progress: OnProgress) -> None:
    make_folder(target.parent)
    part = target.with_name(f"{target.name}.part")
    on_progress(f"taking the model out of {path.name}", 0, 0)

    def work(stopped: Callable[[], bool]) -> str:
        extract_gguf(path, part, stopped)
        return sha256_of(part, stopped)

    try:
        digest = await in_thread(work)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.replace(target)
    remember_verified(target, digest)
