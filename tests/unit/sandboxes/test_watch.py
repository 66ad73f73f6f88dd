"""A layer that holds much is not looked at where nothing was written, and whatever is written is noticed.

Snapshots.unchanged() says yes without a look, or not at all, of a layer of more than 300 entries.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, sandbox_uid
from stockade_sandbox.overlay import prepare_layer
from stockade_sandbox.overlay.snapshots import Snapshots
from stockade_sandbox.overlay.store import read_snapshot
from stockade_sandbox.policy import FolderRule, Limits, Policy
from stockade_sandbox.results import FolderLayer

pytestmark = pytest.mark.anyio
MAKE = "mkdir -p m/n && for i in $(seq 400); do echo $i > m/n/$i; done"
WRITES = {
    "a file written to": "echo more >> m/n/7",
    "as long as before, in place": "echo 9 | dd of=m/n/9 conv=notrunc status=none",
    "a hard link written to": "ln m/n/3 link; : settled; echo more >> link",
    "truncated": "truncate -s 1 m/n/10",
    "a new file": "echo x > m/n/new",
    "a new folder": "mkdir m/n/folder",
    "gone": "rm m/n/11",
    "renamed": "mv m/n/12 m/n/13",
    "a folder renamed": "mv m/n m/o && mv m/o m/n",
    "a mode": "chmod 600 m/n/14",
    "a time": "touch -d @1 m/n/15",
    "a symlink": "ln -s x m/n/symlink",
    "the user's file": "echo more >> given/below/file",
    "beside the user's": "echo x > given/below/beside",
    "in a folder of just now": "echo more >> given/below/beside",
    "the user's file gone": "rm given/below/other",
    "mapped and closed": "python3 -c \"import mmap; f = open('m/n/16', 'r+b'); mmap.mmap(f.fileno(), 0)[0:1] = b'x'\"",
}
MAPPED = """exec 9<>m/n/17; python3 -c "
import mmap, time
with mmap.mmap(9, 0) as seen:
    open('/tmp/ready', 'w').close()
    for n in range(10 ** 6):
        seen[0:1] = b'%d' % (n % 10); time.sleep(0.01)
" & exec 9<&-; while [ ! -e /tmp/ready ]; do sleep 0.05; done"""


@asynccontextmanager
async def sandbox(tmp_path: Path, *, copy: bool) -> AsyncIterator[tuple[BubblewrapSandbox, FolderLayer, Snapshots]]:
    """With 400 files that the bot made, and have been looked at twice."""
    below = tmp_path / "folder/given/below"
    below.mkdir(parents=True)
    for name in ("file", "other"):
        (below / name).write_text(f"{name}\n")
    rule = FolderRule(host=str(tmp_path / "folder"))
    uid = sandbox_uid(()) if os.geteuid() == 0 else None
    layer = prepare_layer(rule, tmp_path / "run", sandbox_uid=uid, can_overlay=lambda _: "a copy" if copy else None)
    assert layer.strategy == ("copy" if copy else "overlay")
    policy = Policy(folders=(rule,), limits=Limits(command_timeout_s=60))
    async with BubblewrapSandbox(policy, (layer,), tmp_path / "run") as box:
        kept = Snapshots(layer, guard=lambda: box.host_pid)
        assert (await box.run(MAKE)).exit_code == 0
        kept.take()
        kept.take()
        yield box, layer, kept
        kept.close()


async def settles(kept: Snapshots) -> bool:
    """Whether it is known soon that nothing was written: what still begins or ends in the sandbox is looked after."""
    for _ in range(50):
        if kept.unchanged():
            return True
        await anyio.sleep(0.1)
    return False


@pytest.mark.parametrize("copy", [False, True], ids=["overlay", "copy"])
async def test_nothing_is_looked_at_until_something_is_written(tmp_path: Path, copy: bool) -> None:
    async with sandbox(tmp_path, copy=copy) as (box, layer, kept):
        for command in ("true", "cat m/n/1 given/below/*", "grep -r x .", "ls -lR . > /tmp/listing", "git status"):
            await box.run(command)
            assert await settles(kept), command
        folder, before = Path(str(layer.layer)) / "kept", kept.name
        for name, command in WRITES.items():
            done = await box.run(command)
            assert done.exit_code == 0, (name, done)
            assert not kept.unchanged(), name
            kept.take()
            assert await settles(kept), name
            await box.run("true")
            assert await settles(kept), name
        assert kept.name != before
        entries = read_snapshot(folder, kept.name)
        assert {"m/n/new", "m/n/folder", "m/n/symlink", "link", "given/below/beside"} < entries.keys()
        assert "m/n/12" not in entries
        assert entries["m/n/14"].mode == 0o600
        assert entries["given/below/other"].kind == ("gone" if copy else "whiteout")


@pytest.mark.parametrize("copy", [False, True], ids=["overlay", "copy"])
async def test_a_process_that_writes_without_an_event_is_looked_after(tmp_path: Path, copy: bool) -> None:
    async with sandbox(tmp_path, copy=copy) as (box, _, kept):
        await box.run("sleep 100 > /tmp/log & tail -f m/n/18 > /dev/null & true")
        kept.take()
        assert await settles(kept), "one that only reads, or writes elsewhere"
        await box.run(MAPPED)
        for _ in range(3):
            assert not kept.unchanged()
            kept.take()
            await box.run("true")
        await box.run("kill %3; wait %3")
        kept.take()
        assert await settles(kept)


async def test_a_sandbox_that_was_started_anew_is_watched_anew(tmp_path: Path) -> None:
    async with sandbox(tmp_path, copy=False) as (_, layer, kept):
        pass
    assert not kept.unchanged()
    policy = Policy(folders=(FolderRule(host=layer.host),))
    async with BubblewrapSandbox(policy, (layer,), tmp_path / "run") as box:
        again = Snapshots(layer, kept.name, guard=lambda: box.host_pid)
        again.take()
        again.take()
        assert await settles(again)
        await box.run("echo x >> m/n/1")
        assert not again.unchanged()
        again.close()
