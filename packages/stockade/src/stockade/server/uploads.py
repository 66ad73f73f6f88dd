"""Folders that clients send: a tar, unpacked as those that come out of a sandbox are. Each is one token's alone."""

import os
import secrets
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from anyio import to_thread

from stockade.core.errors import ActionFailed, UsageError
from stockade.core.ports import RunStore
from stockade.server.bounds import Full
from stockade.server.models import Upload
from stockade.server.runs import NotFound
from stockade.server.tokens import Token
from stockade_sandbox.files import unpack
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.processes import own_folder

MAX_UNPACKED = 2 << 30
MAX_UPLOADS, MAX_BYTES = 20, 8 << 30
"""Of one token; one that comes now counts as the largest that it may become."""
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


class Uploads:
    """Beside the data of this user, until they are removed: what bots are given is no part of our own files."""

    def __init__(self, store: RunStore, root: Path | None = None) -> None:
        self._store, self._coming = store, Counter[str]()
        self._root = root or own_folder("data", "stockade-uploads")

    def path(self, token: Token, upload: str) -> Path:
        """NotFound for another token's."""
        path = self._root / token.id / upload
        if not (upload.isalnum() and path.is_dir()):
            raise NotFound(f"there is no upload {upload!r}", "POST /v1/uploads")
        return path

    async def take(self, token: Token, pieces: AsyncIterator[bytes]) -> Upload:
        """Streamed to disk, then unpacked. UsageError for what is no tar of a folder, or larger than it may be; Full
        when the token has as much as it may, and runs on all of it.
        """
        self._coming[token.id] += 1
        try:
            await self._make_room(token)
            return await self._take(token, pieces)
        finally:
            self._coming[token.id] -= 1

    async def _make_room(self, token: Token) -> None:
        """The oldest that no run is on go first."""
        coming, there = self._coming[token.id], await to_thread.run_sync(_sizes, self._root / token.id)
        for path in list(there):
            if len(there) + coming <= MAX_UPLOADS and sum(there.values()) + coming * MAX_UNPACKED <= MAX_BYTES:
                return
            if not await self._store.runs(folder=str(path.resolve()), limit=1):
                await to_thread.run_sync(remove_tree, path)
                del there[path]
        if len(there) + coming > MAX_UPLOADS or sum(there.values()) + coming * MAX_UNPACKED > MAX_BYTES:
            what = f"this token has {len(there)} uploads that runs are on, or that come now"
            raise Full(what, "DELETE /v1/uploads/ID of one that is not needed")

    async def _take(self, token: Token, pieces: AsyncIterator[bytes]) -> Upload:
        name, size = "".join(secrets.choice(_ALPHABET) for _ in range(16)), 0
        target = self._root / token.id / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=target.parent) as got:
            async for piece in pieces:
                size += len(piece)
                await to_thread.run_sync(got.write, piece)
            got.seek(0)
            try:
                left = await to_thread.run_sync(unpack, got, target, MAX_UNPACKED)
            except ActionFailed as error:
                raise UsageError(f"this is {error.message}", "tar -C FOLDER -c .") from None
            except OSError as error:
                raise UsageError(f"the folder cannot be unpacked: {error.strerror}") from None
        return Upload(id=name, bytes=size, left_out=left[:200])

    async def remove(self, token: Token, upload: str) -> None:
        await to_thread.run_sync(remove_tree, self.path(token, upload))


def _sizes(folder: Path) -> dict[Path, int]:
    """The uploads in it, the oldest first, each with its bytes on disk."""
    found = sorted((one for one in folder.glob("*") if one.is_dir()), key=lambda one: one.stat().st_ctime_ns)
    return {one: sum(_blocks(Path(at, name)) for at, _, names in os.walk(one) for name in names) for one in found}


def _blocks(path: Path) -> int:
    return path.lstat().st_blocks * 512
