"""Folders that clients send: a tar, unpacked as those that come out of a sandbox are. Each is one token's alone."""

import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import platformdirs
from anyio import to_thread

from stockade.core.errors import ActionFailed, UsageError
from stockade.server.models import Upload
from stockade.server.runs import NotFound
from stockade.server.tokens import Token
from stockade_sandbox.files import unpack
from stockade_sandbox.overlay.discard import remove_tree

MAX_UNPACKED = 2 << 30
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


class Uploads:
    """Beside the data of this user, until they are removed: what bots are given is no part of our own files."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or Path(platformdirs.user_data_dir("stockade-uploads", appauthor=False))

    def path(self, token: Token, upload: str) -> Path:
        """NotFound for another token's."""
        path = self._root / token.id / upload
        if not (upload.isalnum() and path.is_dir()):
            raise NotFound(f"there is no upload {upload!r}", "POST /v1/uploads")
        return path

    async def take(self, token: Token, pieces: AsyncIterator[bytes]) -> Upload:
        """Streamed to disk, then unpacked. UsageError for what is no tar of a folder, or larger than it may be."""
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
