"""Where the bytes of a model come from: `https:` and `file:` here, `hf:` in hub.py, `pypi:` in pypi.py.

Every source of a model yields the same bytes (the hash is pinned), so what one source left in the `.part` file the next
one continues. The `.part` file is always a true prefix of the model, as far as the source is honest.
"""

import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import anyio
import httpx2

from stockade.core.errors import ModelUnavailable
from stockade.files import open_regular
from stockade.models.progress import OnBytes
from stockade.models.shelf import open_at, size_of
from stockade.models.tls import tls_context

REACH_TIMEOUT_S = 10.0
STALL_TIMEOUT_S = 60.0
_ATTEMPTS_WITHOUT_PROGRESS = 3
_COPY_BLOCK = 1 << 22
MAX_LISTING_BYTES = 32 << 20


class NotReached(ModelUnavailable):
    """This source does not give the file; the next one is worth trying."""


class Source(Protocol):
    """One place of one file."""

    @property
    def address(self) -> str:
        """For people: where the bytes come from."""
        ...

    @property
    def extra_bytes(self) -> int:
        """Disk needed beside the file itself while fetching."""
        ...

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        """Continue `part` until it has `size_bytes`. NotReached when that is not possible from here."""
        ...


class HttpSource:
    """A plain GET with Range, redirects followed, cut connections continued."""

    extra_bytes = 0

    def __init__(self, address: str, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.address = address
        self._url = url
        self._headers = dict(headers or {})

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        timeout = httpx2.Timeout(REACH_TIMEOUT_S, read=STALL_TIMEOUT_S)
        failures = 0
        async with httpx2.AsyncClient(timeout=timeout, follow_redirects=True, verify=tls_context()) as client:
            while (before := size_of(part)) < size_bytes:
                try:
                    await self._continue(client, part, size_bytes, on_bytes)
                except (httpx2.TransportError, httpx2.TooManyRedirects, httpx2.InvalidURL) as error:
                    failures = 0 if size_of(part) > before else failures + 1
                    if failures >= _ATTEMPTS_WITHOUT_PROGRESS or isinstance(error, _HOPELESS):
                        raise NotReached(f"{self.address} was not reached: {error or type(error).__name__}") from error

    async def _continue(self, client: httpx2.AsyncClient, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        have = size_of(part)
        headers = {**self._headers, "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        async with client.stream("GET", self._url, headers=headers) as response:
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
        if status == 416 or status == 206:
            raise NotReached(f"{self.address} does not continue the file at byte {have}")
        raise NotReached(f"{self.address} answered {status} {response.reason_phrase}")


_HOPELESS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.TooManyRedirects, httpx2.InvalidURL,
             httpx2.UnsupportedProtocol)  # fmt: skip


async def listing_at(url: str, headers: Mapping[str, str] | None = None) -> bytes:
    """The body at `url`, which is short. NotReached says why not."""
    async with _got(url, headers) as response:
        body = b""
        async for block in response.aiter_bytes():
            body += block
            if len(body) > MAX_LISTING_BYTES:
                raise NotReached(f"{_host(url)} answers with more than {MAX_LISTING_BYTES} bytes")
        return body


async def size_at(url: str) -> int:
    """Bytes of the file at `url`. NotReached when nobody says."""
    async with _got(url, {"Accept-Encoding": "identity"}) as response:
        length = response.headers.get("content-length", "")
    if not length.isdecimal():
        raise NotReached(f"{_host(url)} does not say how large the file is")
    return int(length)


@asynccontextmanager
async def _got(url: str, headers: Mapping[str, str] | None) -> AsyncIterator[httpx2.Response]:
    timeout = httpx2.Timeout(REACH_TIMEOUT_S, read=STALL_TIMEOUT_S)
    try:
        async with httpx2.AsyncClient(timeout=timeout, follow_redirects=True, verify=tls_context()) as client:
            async with client.stream("GET", url, headers=dict(headers or {})) as response:
                if response.status_code != 200:
                    raise NotReached(f"{_host(url)} answered {response.status_code} {response.reason_phrase}")
                yield response
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NotReached(f"{_host(url)} was not reached: {error or type(error).__name__}") from error


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


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
