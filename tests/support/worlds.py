"""File systems beneath a user's folder and Stockade's state, and commands there that are killed at a named step.

A world lives in a mount namespace of its own, on a tmpfs that goes with it, whatever happens. A machine that cannot
mount makes `world` raise, with what mount said.

Each step is killed once for a strategy, on one of the file systems in turn; from STOCKADE_TEST_SCALE=2 on half as often
as that for each file system and strategy. With STOCKADE_KILLS_LOG, a file, each kill leaves a
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
from tempfile import TemporaryDirectory
from typing import Any, Literal
from zlib import crc32

from tests.conformance.ordinary_user import UID, closed_parent
from tests.support.scale import SCALE

KILLS = int(SCALE) // 2
LOG = os.environ.get("STOCKADE_KILLS_LOG")
ROOT = Path(__file__).parents[2]
BASE = Path("/srv")
"""In the namespace of a world."""
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

    server: "subprocess.Popen[str]"
    uid: int
    state_home: Path
    base: Path = BASE
    folder: Path = BASE / "disk" / "demo"

    @property
    def state(self) -> Path:
        return self.state_home / "stockade"

    def seen(self, path: Path) -> Path:
        return Path(f"/proc/{self.server.pid}/root{path}")

    def call(self, *argv: str, step: str = "", time: int = 0, trace: bool = False) -> Ended:
        """A command of Stockade, to its end; or killed just before `step` when it comes to it for the `time`-th time,
        from 0. With `trace`, `out` are the steps that it came to, a line each."""
        out, err, steps = (self.base / name for name in ("out", "err", "steps"))
        order = {"argv": argv, "out": str(out), "err": str(err), "step": step, "time": time, "hold": False, "trace": ""}
        if trace:
            self.seen(steps).unlink(missing_ok=True)
            order["trace"] = str(steps)
        status = self._ask(order)
        said = self.seen(steps if trace else out).read_text(errors="replace")
        return Ended(status, said, self.seen(err).read_text(errors="replace"))

    @contextmanager
    def held(self, *argv: str, step: str, time: int = 0) -> Iterator[None]:
        """Inside, a command stands still just before a step, as in `call`. It is killed after."""
        order = {"argv": argv, "out": os.devnull, "err": os.devnull, "step": step, "time": time, "hold": True}
        assert self._ask({**order, "trace": ""}) == -signal.SIGSTOP
        yield
        self._write("\n")

    def _ask(self, order: dict[str, Any]) -> int:
        assert self.server.stdout is not None
        self._write(json.dumps(order) + "\n")
        return int(self.server.stdout.readline())

    def _write(self, line: str) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(line)
        self.server.stdin.flush()

    def clear(self, folder: Path) -> Path:
        """Empty it, or make it. As we see it."""
        seen = self.seen(folder)
        seen.mkdir(parents=True, exist_ok=True)
        subprocess.run(["find", str(seen), "-mindepth", "1", "-delete"], check=True)
        return seen

    def tree(self) -> str:
        return tree_hash(self.seen(self.folder))

    def left_behind(self) -> list[str]:
        """What is in the folder of runs."""
        runs = self.seen(self.state) / "runs"
        return sorted(str(path.relative_to(runs)) for path in runs.rglob("*")) if runs.exists() else []


def listing(folder: Path) -> list[tuple[Any, ...]]:
    """Of each entry below `folder`: path, kind and mode, owner, bytes or link target, extended attributes."""
    entries: list[tuple[Any, ...]] = []
    for path in sorted(folder.rglob("*")):
        found, name = path.lstat(), str(path.relative_to(folder))
        content: object = ""
        if stat.S_ISREG(found.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(found.st_mode):
            content = os.readlink(path)
        marks = {mark: os.getxattr(path, mark, follow_symlinks=False).hex() for mark in _marks(path)}
        entries.append((name, found.st_mode, found.st_uid, found.st_gid, content, sorted(marks.items())))
    return entries


def _marks(path: Path) -> list[str]:
    return [name for name in os.listxattr(path, follow_symlinks=False) if not name.startswith("trusted.overlay.")]


def tree_hash(folder: Path) -> str:
    return hashlib.sha256(repr(listing(folder)).encode(errors="surrogateescape")).hexdigest()


@contextmanager
def world(beneath: Beneath, strategy: Strategy, seed: int, disk: bytes | None = None) -> Iterator[World]:
    """`seed` decides in which order an ext4 lists a folder. `strategy`: what a run comes to there by itself.

    With `copy`, the state is on an overlay as inside a container, where layers can only be copies. An overlay over
    another can only be had by an ordinary user, which commands are then. `disk` is the ext4 of another such world,
    which is then on another device.
    """
    uid = UID if (beneath, strategy) == ("overlayfs", "overlay") else 0
    state = BASE / "disk" / "state" if strategy == "overlay" and beneath != "overlayfs" else BASE / "state"
    argv = ["unshare", "--mount", "--propagation=private", sys.executable, "-m", "tests.support.world_server"]
    pipe = subprocess.PIPE
    with TemporaryDirectory() as folder:
        left = Path(folder, "disk") if disk is not None else None
        if left is not None and disk is not None:
            left.write_bytes(disk)
        mounts = json.dumps(_mounts(beneath, strategy, seed, uid, state, left))
        with subprocess.Popen(
            [*argv, str(uid), mounts],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            cwd=ROOT,
            env=_environment(state),
        ) as server:
            try:
                assert server.stdout is not None
                assert server.stderr is not None
                ready = server.stdout.readline() == "ready\n"
                assert ready, server.stderr.read()
                yield World(server, uid, state)
            finally:
                server.kill()


def _environment(state: Path) -> dict[str, str]:
    folders = {f"XDG_{name}_HOME": str(BASE / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
    folders |= {"XDG_STATE_HOME": str(state), "XDG_RUNTIME_DIR": str(BASE / "run"), "HOME": str(BASE / "home")}
    return {**os.environ, **folders}


def _mounts(
    beneath: Beneath, strategy: Strategy, seed: int, uid: int, state: Path, left: Path | None
) -> list[list[str]]:
    disk, image = BASE / "disk", BASE / "image"
    makes = _python_for_all() if uid else []
    makes += [["mount", "-t", "tmpfs", "-o", f"mode=755,size={3 * _SIZE_M}m", "tmpfs", str(BASE)]]
    makes += [["mkdir", str(disk), str(BASE / "state"), str(BASE / "home")], ["mkdir", "-m", "700", str(BASE / "run")]]
    layers = BASE / "layers"
    if beneath == "ext4":
        hash_seed = uuid.uuid5(uuid.NAMESPACE_OID, str(seed))
        made = ["mke2fs", "-q", "-F", "-t", "ext4", "-E", f"hash_seed={hash_seed}", str(image), f"{_SIZE_M}M"]
        if left is not None:
            makes += [made, ["mkdir", str(BASE / "first")], ["mount", "-o", "loop", str(image), str(BASE / "first")]]
            image = BASE / "image2"
            made = ["cp", "--sparse=always", str(left), str(image)]
        makes += [made, ["mount", "-o", "loop,commit=300", str(image), str(disk)]]
        layers = disk / "layers"
    elif beneath == "overlayfs":
        makes += _overlay(BASE / "beneath", disk)
    if strategy == "copy":
        makes += _overlay(layers, state)
    places = [str(disk / "demo"), str(state)]
    return [*makes, ["mkdir", "-p", *places], ["chown", "-R", f"{uid}:{uid}", *places, str(BASE)]]


def _python_for_all() -> list[list[str]]:
    """Ours may lie in a folder that is root's alone; nothing else of that folder is seen then."""
    prefix = Path(sys.base_prefix).resolve()
    closed, aside = closed_parent(prefix), "/media/python"
    if not closed:
        return []
    return [
        ["mount", "-t", "tmpfs", "tmpfs", "/media"],
        ["mkdir", aside],
        ["mount", "--rbind", str(prefix), aside],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", closed],
        ["mkdir", "-p", str(prefix)],
        ["mount", "--rbind", aside, str(prefix)],
        ["umount", "--lazy", "/media"],
    ]


def _overlay(folder: Path, target: Path) -> list[list[str]]:
    lower, upper, work = (folder / name for name in ("lower", "upper", "work"))
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    return [
        ["mkdir", "-p", str(lower), str(upper), str(work)],
        ["mount", "-t", "overlay", "overlay", "-o", options, str(target)],
    ]


def give(folder: Path, uid: int) -> None:
    subprocess.run(["chown", "-hR", f"{uid}:{uid}", str(folder)], check=True)


def note_kill(note: dict[str, Any]) -> None:
    """Of one kill: beneath, strategy, seed, command, step, time, and which tree is `legal` in the end."""
    if LOG:
        with open(LOG, "a") as log:
            log.write(json.dumps(note) + "\n")


def chosen(steps: Counter[str], beneath: Beneath, seed: int) -> list[tuple[str, int]]:
    """Each step with which of its times it is killed at: the first for the first seed, the last for the last."""
    found = []
    for step, count in steps.items():
        if KILLS or crc32(step.encode()) % len(BENEATH) == BENEATH.index(beneath):
            found.append((step, (count - 1) * seed // (KILLS - 1) if KILLS > 1 else count // 2))
    return found
