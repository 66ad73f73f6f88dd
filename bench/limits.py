"""By how much the disk limit is overshot: 64 writers at once, in each way there is, into a layer in memory or on disk.

    python -m bench.limits --base /dev/shm --limit 256M --limit 2G

What is written is what the file system below says, looked at all the time by a process of its own; nobody else should
write there. As root, `--base` is best a file system of its own.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from ctypes import c_longlong
from dataclasses import dataclass
from pathlib import Path

import anyio

from bench.table import draw
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.errors import StockadeError
from stockade_sandbox.limits.disk import spelled
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import GIB, FolderRule, Limits, Policy, file_limit, parse_size

WRITERS = 64
_EACH = f"for i in $(seq {WRITERS}); do"
_MAPPED = """import mmap, os, sys
size = int(sys.argv[2])
fd = os.open(f"m{sys.argv[1]}", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, size)
area = mmap.mmap(fd, size)
for at in range(0, size, 4096): area[at] = 1
"""
FLOODS = {
    "write": f"{_EACH} cat /dev/zero > w$i & done; wait",
    "fallocate": f"{_EACH} fallocate -l $SIZE a$i & done; wait",
    "sparse files, mapped": f"cat > m.py <<'end'\n{_MAPPED}end\n{_EACH} python3 m.py $i $SIZE & done; wait",
    "removed but open": f"{_EACH} (exec 5> u$i; rm u$i; cat /dev/zero >&5) & done; wait",
    "many files": f"{_EACH} (mkdir d$i; cd d$i; n=0; while :; do : > $((n+=1)); done) & done; wait",
}


@dataclass(frozen=True)
class Overshoot:
    """Bytes and files beyond the limit at the worst moment, as shares of it; what the bot was told, and what came of
    the sandbox."""

    flood: str
    limit: int
    size: float
    files: float
    told: str
    after: str


def _look(base: str, size: c_longlong, files: c_longlong) -> None:
    while True:
        time.sleep(0.002)
        found = os.statvfs(base)
        size.value = max(size.value, (found.f_blocks - found.f_bfree) * found.f_frsize)
        files.value = max(files.value, found.f_files - found.f_ffree)


async def _flooded(limit: int, base: Path, command: str) -> tuple[str, str]:
    (base / "folder").mkdir()
    limits = Limits(disk_bytes=limit, file_bytes=limit // 2, memory_bytes=4 * limit + GIB, command_timeout_s=60)
    policy = Policy(folders=(FolderRule(host=str(base / "folder")),), limits=limits,
                    environment={"SIZE": str(limit // 4)})  # fmt: skip
    layers = prepare_layers(policy, base / "run")
    told = ""
    try:
        async with BubblewrapSandbox(policy, layers, base / "run") as box:
            told = (await box.run(command)).stdout.decode(errors="replace").strip().rpartition("\n")[2]
            freed = await box.run("rm -rf * && echo again > x && cat x")
            return told, "goes on" if freed.stdout == b"again\n" else f"cannot delete: {freed.stdout!r}"
    except StockadeError as error:
        return told, f"ended: {error}"
    finally:
        for layer in layers:
            Review().discard(layer)


def measure(floods: Sequence[str], limit: int, base: Path) -> list[Overshoot]:
    found = []
    for flood in floods:
        with tempfile.TemporaryDirectory(dir=base) as folder:
            size, files = multiprocessing.RawValue("q", 0), multiprocessing.RawValue("q", 0)
            before = os.statvfs(folder)
            looking = multiprocessing.Process(target=_look, args=(folder, size, files), daemon=True)
            looking.start()
            told, after = anyio.run(_flooded, limit, Path(folder), FLOODS[flood])
            looking.kill()
            looking.join()
        grown = size.value - (before.f_blocks - before.f_bfree) * before.f_frsize
        made = files.value - (before.f_files - before.f_ffree)
        found.append(
            Overshoot(flood, limit, max(0, grown / limit - 1), max(0, made / file_limit(limit) - 1), told, after)
        )
    return found


def drawn(found: Sequence[Overshoot]) -> str:
    head = [f"{WRITERS} writers", "limit", "bytes over", "files over", "told", "the sandbox"]
    rows = [
        [one.flood, spelled(one.limit), f"{one.size:.0%}", f"{one.files:.0%}", one.told[-60:], one.after]
        for one in found
    ]
    return draw(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="where the layers lie")
    parser.add_argument("--limit", action="append", type=parse_size, metavar="SIZE")
    parser.add_argument("--flood", action="append", choices=FLOODS)
    chosen = parser.parse_args()
    for limit in chosen.limit or [256 << 20]:
        print(drawn(measure(chosen.flood or list(FLOODS), limit, chosen.base)), flush=True)


if __name__ == "__main__":
    main()
