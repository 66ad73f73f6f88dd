"""File systems beneath a user's folder and Stockade's state, and commands there that are killed at a named step.

A world lives in a mount namespace of its own, on a tmpfs that goes with it, whatever happens. A machine that cannot
mount makes `world` raise, with what mount said.

STOCKADE_AIMED_KILLS sets how often each step is killed for each file system and strategy (0: each once for a strategy,
on one of the file systems in turn); `make test-long` asks for 10. With STOCKADE_KILLS_LOG, a file, each kill leaves a
line of JSON there.
"""

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

KILLS = int(os.environ.get("STOCKADE_AIMED_KILLS", "0"))
LOG = os.environ.get("STOCKADE_KILLS_LOG")
ROOT = Path(__file__).parents[2]
BENEATH = ("ext4", "overlayfs", "tmpfs")
STRATEGIES = ("overlay", "copy")
_SIZE_M = 96

Beneath = Literal["ext4", "overlayfs", "tmpfs"]
Strategy = Literal["overlay", "copy"]


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def was_killed(self) -> bool:
        return self.status == -signal.SIGKILL


@dataclass
class World:
    """`folder` is the user's, as commands there name it; `seen` makes a path there one for us."""

    base: Path
    server: "subprocess.Popen[str]"

    @property
    def folder(self) -> Path:
        return self.base / "disk" / "demo"

    @property
    def state(self) -> Path:
        return self.base / "state" / "stockade"

    def seen(self, path: Path) -> Path:
        return Path(f"/proc/{self.server.pid}/root{path}")

    def call(self, *argv: str, step: str = "", time: int = 0, trace: bool = False) -> Ended:
        """A command of Stockade, to its end; or killed just before `step` when it comes to it for the `time`-th time,
        from 0. With `trace`, `out` are the steps that it came to, a line each."""
        out, err, steps = (self.base / name for name in ("out", "err", "steps"))
        order = {"argv": argv, "out": str(out), "err": str(err), "step": step, "time": time, "trace": ""}
        if trace:
            self.seen(steps).unlink(missing_ok=True)
            order["trace"] = str(steps)
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        status = int(self.server.stdout.readline())
        said = self.seen(steps if trace else out).read_text(errors="replace")
        return Ended(status, said, self.seen(err).read_text(errors="replace"))

    def clear(self, folder: Path) -> Path:
        """Empty it, or make it. As we see it."""
        seen = self.seen(folder)
        seen.mkdir(exist_ok=True)
        subprocess.run(["find", str(seen), "-mindepth", "1", "-delete"], check=True)
        return seen

    def tree(self) -> str:
        return tree_hash(self.seen(self.folder))

    def left_behind(self) -> list[str]:
        """What is in the folder of runs."""
        runs = self.seen(self.state) / "runs"
        return sorted(str(path.relative_to(runs)) for path in runs.rglob("*")) if runs.exists() else []


def listing(folder: Path) -> list[tuple[Any, ...]]:
    """Of each entry below `folder`: path, kind and mode, owner, bytes or link target, extended attributes, and which
    name it shares its inode with.
    """
    entries: list[tuple[Any, ...]] = []
    first: dict[int, str] = {}
    for path in sorted(folder.rglob("*")):
        found, name = path.lstat(), str(path.relative_to(folder))
        content: object = ""
        if stat.S_ISREG(found.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(found.st_mode):
            content = os.readlink(path)
        marks = {mark: os.getxattr(path, mark, follow_symlinks=False).hex() for mark in _marks(path)}
        twin = first.setdefault(found.st_ino, name) if not stat.S_ISDIR(found.st_mode) else name
        entries.append((name, found.st_mode, found.st_uid, found.st_gid, content, sorted(marks.items()), twin))
    return entries


def _marks(path: Path) -> list[str]:
    return [name for name in os.listxattr(path, follow_symlinks=False) if not name.startswith("trusted.overlay.")]


def tree_hash(folder: Path) -> str:
    return hashlib.sha256(repr(listing(folder)).encode(errors="surrogateescape")).hexdigest()


@contextmanager
def world(base: Path, beneath: Beneath, strategy: Strategy, seed: int) -> Iterator[World]:
    """`seed` decides in which order an ext4 lists a folder. `strategy`: what a run comes to there by itself.

    With `copy`, the state is on an overlay as inside a container, where layers can only be copies.
    """
    base.mkdir()
    argv = ["unshare", "--mount", "--propagation=private", sys.executable, "-m", "tests.support.world_server"]
    orders = json.dumps(_mounts(base, beneath, strategy, seed))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*argv, orders], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=_environment(base)
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stderr is not None
            ready = server.stdout.readline() == "ready\n"
            assert ready, server.stderr.read()
            yield World(base, server)
        finally:
            server.kill()


def _environment(base: Path) -> dict[str, str]:
    folders = {f"XDG_{name}_HOME": str(base / name.lower()) for name in ("STATE", "CONFIG", "DATA", "CACHE")}
    return {**os.environ, **folders, "HOME": str(base / "home"), "XDG_RUNTIME_DIR": str(base / "run")}


def _mounts(base: Path, beneath: Beneath, strategy: Strategy, seed: int) -> list[list[str]]:
    disk, state, image = base / "disk", base / "state", base / "image"
    makes = [["mount", "-t", "tmpfs", "-o", f"size={2 * _SIZE_M}m", "tmpfs", str(base)]]
    makes += [["mkdir", "-p", str(disk), str(state), str(base / "home"), str(base / "run"), str(base / "layers")]]
    makes += [["chmod", "700", str(base / "run")]]
    layers = base / "layers"
    match beneath:
        case "ext4":
            hash_seed = uuid.uuid5(uuid.NAMESPACE_OID, str(seed))
            makes += [["truncate", "-s", f"{_SIZE_M}M", str(image)]]
            makes += [["mke2fs", "-q", "-F", "-t", "ext4", "-E", f"hash_seed={hash_seed}", str(image)]]
            makes += [["mount", "-o", "loop", str(image), str(disk)]]
            layers = disk / "layers"
        case "overlayfs":
            makes += _overlay(base / "beneath", disk)
        case "tmpfs":
            layers = disk / "layers"
    if strategy == "copy":
        makes += _overlay(layers, state)
    else:  # beside the folder, but never on its overlay, which cannot be the upper of another
        makes += [["mkdir", "-p", str(layers)], ["mount", "--bind", str(layers), str(state)]]
    return [*makes, ["mkdir", str(disk / "demo")]]


def _overlay(folder: Path, target: Path) -> list[list[str]]:
    lower, upper, work = (folder / name for name in ("lower", "upper", "work"))
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    return [
        ["mkdir", "-p", str(lower), str(upper), str(work)],
        ["mount", "-t", "overlay", "overlay", "-o", options, str(target)],
    ]


def note_kill(note: dict[str, Any]) -> None:
    """Of one kill: beneath, strategy, seed, command, step, time, and which tree is `legal` in the end."""
    if LOG:
        with open(LOG, "a") as log:
            log.write(json.dumps(note) + "\n")


def chosen(steps: Counter[str], beneath: Beneath, seed: int) -> list[tuple[str, int]]:
    """Each step with which of its times it is killed at: the first for the first seed, the last for the last."""
    found = []
    for number, (step, count) in enumerate(steps.items()):
        if KILLS or number % len(BENEATH) == BENEATH.index(beneath):
            found.append((step, (count - 1) * seed // (KILLS - 1) if KILLS > 1 else count // 2))
    return found
