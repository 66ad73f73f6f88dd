"""Which tools of which server were accepted, by hash: a server must not become another one behind the person's back."""

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stockade.core.errors import UsageError
from stockade.files import read_regular

MAX_FILE_BYTES = 8 << 20
VERSION = 1


@dataclass(frozen=True, slots=True)
class Differences:
    """What a server says now against what was accepted. `known`: something was."""

    known: bool
    changed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.changed or self.new)

    def __str__(self) -> str:
        parts = [
            f"{word}: {', '.join(names)}" for word, names in (("changed", self.changed), ("new", self.new)) if names
        ]
        return "; ".join(parts)


def identity_key(identity: Mapping[str, Any]) -> str:
    """The server's name, readable, and a digest of how it is reached."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{identity['name']} {digest[:16]}"


@dataclass(frozen=True, slots=True)
class Pins:
    """The file `mcp-pins.json` in the state folder. Blocking. UsageError when it cannot be read or written."""

    path: Path

    def compare(self, server: str, tools: Mapping[str, str]) -> Differences:
        """`tools`: their hashes by name. One that is gone is no difference."""
        accepted = self._read().get(server)
        if accepted is None:
            return Differences(known=False)
        changed = tuple(name for name, digest in tools.items() if name in accepted and accepted[name] != digest)
        return Differences(True, changed, tuple(name for name in tools if name not in accepted))

    def accept(self, server: str, tools: Mapping[str, str]) -> None:
        """From now on these are the ones, beside those that were there."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                servers = self._read()
                servers[server] = {**servers.get(server, {}), **tools}
                self._write(servers)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from None

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            data = read_regular(self.path, MAX_FILE_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}") from None
        try:
            found = json.loads(data)
            servers = found["servers"]
            if found["version"] == VERSION and _well_formed(servers):
                return dict(servers)
        except (ValueError, RecursionError, KeyError, TypeError):
            pass
        raise UsageError(f"{self.path} is damaged", "remove it: MCP servers are then accepted as if they were new")

    def _write(self, servers: Mapping[str, Mapping[str, str]]) -> None:
        text = json.dumps({"version": VERSION, "servers": servers}, indent=1, sort_keys=True)
        new = self.path.with_suffix(".new")
        with new.open("w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


def _well_formed(servers: Any) -> bool:
    return isinstance(servers, dict) and all(
        isinstance(tools, dict) and all(isinstance(digest, str) for digest in tools.values())
        for tools in servers.values()
    )
