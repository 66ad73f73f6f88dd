"""`stockade model pull`: a model from the catalogue, the hub, an address, a file of this machine or a llamafile.

A llamafile is a program for every system with a zip archive at its end, and a GGUF file in that.
"""

import hashlib
import os
import re
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio.from_thread
import anyio.to_thread

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.catalogue import CATALOGUE, CatalogueModel
from stockade.models.local.download import NotReached, size_at
from stockade.models.local.fetch import fetch
from stockade.models.local.folder import (
    check_space,
    forget,
    is_verified,
    make_folder,
    models_folder,
    remember_verified,
    sha256_of,
)
from stockade.models.local.gguf import read_gguf
from stockade.models.local.hub import HubName, find_file
from stockade.models.settings import OnProgress, silent
from stockade.paths import open_regular

FORMS = "a name of the catalogue, hf:OWNER/REPO[/FILE], https://..., or a .gguf or llamafile on disk"
_BLOCK = 1 << 22


async def pull(
    reference: str, on_progress: OnProgress = silent, folder: Path | None = None, sha256: str = ""
) -> tuple[str, Path]:
    """Fetch what `reference` names (see FORMS): its model name and its file, whole, its hash compared if it is known.

    `sha256` is what the user expects. A cut download is continued next time. UsageError and ModelUnavailable say in
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
    return f"gguf/{path}", path


async def _described(reference: str, sha256: str) -> CatalogueModel:
    """What is to be fetched, as an entry of the catalogue would say it."""
    kind, _, rest = reference.partition(":")
    if kind == "hf" or re.match(r"https://(huggingface\.co|hf\.co)/", reference):
        return await find_file(HubName.parse(rest if kind == "hf" else reference))
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
            on_progress(f"taking the model out of {path.name}", 0, 0)
            digest = await anyio.to_thread.run_sync(extract_gguf, path, target)
            remember_verified(target, digest, model.sources[0], model.licence)
            forget(path)
            path = target
        await anyio.to_thread.run_sync(read_gguf, path)
    except ModelUnavailable:
        forget(path)
        raise
    return path


def is_llamafile(path: Path) -> bool:
    """Whether this is a program or archive with an archive's directory at its end, and no GGUF file."""
    with open_regular(path) as file:
        return file.read(4) != b"GGUF" and zipfile.is_zipfile(file)


def extract_gguf(path: Path, target: Path) -> str:
    """The model in it, to `target`, its checksum compared; nothing in it is run. For a thread of anyio's.

    Its sha256. ModelUnavailable when there is none, or it is damaged.
    """
    make_folder(target.parent)
    part = target.with_name(f"{target.name}.part")
    try:
        with zipfile.ZipFile(path) as archive:
            models = [item for item in archive.infolist() if item.filename.endswith(".gguf")]
            if not models:
                raise ModelUnavailable(f"there is no GGUF file in {path}", "is it a llamafile without its model?")
            model = max(models, key=lambda item: item.file_size)
            check_space(target.parent, model.file_size)
            with archive.open(model) as source, part.open("wb") as file:  # which compares the checksum
                while block := source.read(_BLOCK):
                    anyio.from_thread.check_cancelled()
                    file.write(block)
        digest = sha256_of(part)
        part.replace(target)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ModelUnavailable(f"{path} is damaged: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return digest
