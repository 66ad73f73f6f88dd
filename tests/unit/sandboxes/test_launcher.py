"""The launcher: its bytes, its refusals, its maps."""

import itertools
import os
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade_sandbox.backends.feature_probe import run_operations
from stockade_sandbox.backends.host_info import host_facts
from stockade_sandbox.backends.seccomp import filter_bytes
from stockade_sandbox.launcher import launch


@pytest.mark.parametrize(
    ("operations", "complaint"),
    [
        (["nonsense"], "operation nonsense: Function not implemented"),
        (["tree", "0"], "tree argument missing: Invalid argument"),
        (["tree", "99", "/"], "slot 99: Invalid argument"),
        (["tree", "x1", "/"], "number x1: Invalid argument"),
        (["tree", "0", "/does/not/exist"], "tree /does/not/exist: No such file or directory"),
        (["parent", "1"], "parent 1: No such process"),
        (["try", "/proc"], "try /proc/"),
        (["cgroup", "/nowhere"], "cgroup /nowhere: No such file or directory"),
        (["attributes", "5", "1"], "attributes 5: "),
        (["write", "/does/not/exist", "x"], "write /does/not/exist: No such file or directory"),
        (["remove", "/does/not/exist"], "remove /does/not/exist: No such file or directory"),
        (["filter", "/dev/null"], "filter /dev/null: Invalid argument"),
        (["filter", "/dev/zero"], "filter /dev/zero: Invalid argument"),
    ],
)
def test_failures_are_one_line(operations: list[str], complaint: str) -> None:
    if operations[0] == "attributes":
        operations = ["mountns", *operations]
    assert (run_operations(operations) or "").startswith(complaint)


def test_a_filter_is_loaded_for_good(tmp_path: Path) -> None:
    (tmp_path / "filter").write_bytes(filter_bytes())
    trial = ["filter", str(tmp_path / "filter"), "call", "272", str(0x10000000), "0", "0"]
    assert run_operations(trial) == "call 272: Operation not permitted"
    assert run_operations(trial[2:]) is None


def test_nothing_is_left_that_a_capability_could_be_had_by(tmp_path: Path) -> None:
    """As process one of a gVisor sandbox does; here as root."""
    (tmp_path / "launch").write_bytes(launch.launcher_bytes())
    (tmp_path / "launch").chmod(0o755)
    words = ["keep", "bound", "ids", "65534", "65534", "exec", "/bin/grep", "Cap", "/proc/self/status"]
    said = subprocess.run([tmp_path / "launch", *words], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in said.splitlines()} == {"0" * 16}


@pytest.mark.parametrize(("words", "seen"), [(["keep"], "x=y\n"), ([], "")])
def test_the_environment_is_kept_when_that_is_said(tmp_path: Path, words: list[str], seen: str) -> None:
    (tmp_path / "launch").write_bytes(launch.launcher_bytes())
    (tmp_path / "launch").chmod(0o755)
    command = [str(tmp_path / "launch"), *words, "exec", "/usr/bin/env"]
    assert subprocess.run(command, capture_output=True, text=True, env={"x": "y"}, check=True).stdout == seen


def launched(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (place / "launch").write_bytes(launch.launcher_bytes())
    (place / "launch").chmod(0o755)
    return subprocess.run([place / "launch", *words], capture_output=True, text=True, env={}, check=False)


def test_what_is_shown_is_a_copy_or_a_mount_that_cannot_be_written(tmp_path: Path) -> None:
    host, stage = tmp_path / "host", tmp_path / "stage"
    for name in ("folder/inner", "few", "closed", "linked"):
        (host / name).mkdir(parents=True)
    stage.mkdir()
    (host / "small").write_text("small\n")
    (host / "large").write_bytes(b"x" * (1 << 20))
    (host / "folder/file").write_text("inside\n")
    for number in range(6):
        (host / f"few/{number}").write_text(f"{number}\n")
    (host / "closed/file").touch(mode=0o600)
    (host / "linked/file").symlink_to("/etc/shadow")
    (host / "link").symlink_to("small")
    os.mkfifo(host / "fifo")
    words = ["mountns", "tmpfs", str(stage), "size=1m,mode=755"]
    for name in ("small", "large", "folder", "few", "closed", "linked", "link", "fifo", "missing"):
        words += ["show", str(host / name), str(stage / name)]
    script = f"""cd {stage}; ls | tr '\\n' ' '; cat small link folder/file few/*; wc -c < large
        for file in large folder/file; do echo > $file || echo kept; done; awk '$5 ~ "^{stage}/" {{print $5}}' $1"""
    done = launched(tmp_path, *words, "exec", "/bin/sh", "-c", script, "sh", "/proc/self/mountinfo")
    mounted = "".join(f"{stage}/{name}\n" for name in ("large", "folder", "closed", "linked"))
    copied = "small\nsmall\ninside\n0\n1\n2\n3\n4\n5\n1048576\n"
    assert done.stdout == f"closed few folder large link linked small {copied}kept\nkept\n{mounted}"
    assert (host / "folder/file").read_text() == "inside\n"


def test_devices_are_made_and_the_folder_is_sealed(tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    words = ["mountns", "devices", str(dev), "pts", f"{dev}/pts", "link", f"{dev}/ptmx", "pts/ptmx", "seal", str(dev)]
    script = f"""cd {dev}; stat -c '%n %F %t:%T %a' *; head -c 2 zero | wc -c; echo x > null && echo gone
        touch new 2>/dev/null || echo sealed; ls -A pts"""
    done = launched(tmp_path, *words, "exec", "/bin/bash", "-c", script)
    assert done.stdout.splitlines() == [
        "full character special file 1:7 666", "null character special file 1:3 666", "ptmx symbolic link 0:0 777",
        "pts directory 0:0 755", "random character special file 1:8 666", "tty character special file 5:0 666",
        "urandom character special file 1:9 666", "zero character special file 1:5 666", "2", "gone", "sealed", "ptmx",
    ], done.stderr  # fmt: skip


def test_where_no_device_can_be_made_the_hosts_are_mounted(tmp_path: Path) -> None:
    """As in a container: root without the capability."""
    dev = tmp_path / "dev"
    words = ["mountns", "devices", str(dev), "exec", "/bin/grep", "-c", f" {dev}/", "/proc/self/mountinfo"]
    (tmp_path / "launch").write_bytes(launch.launcher_bytes())
    (tmp_path / "launch").chmod(0o755)
    program = ["setpriv", "--bounding-set=-mknod", str(tmp_path / "launch"), *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.stdout == "6\n", done.stderr


def test_the_stage_becomes_the_root_and_nothing_else_is_mounted(tmp_path: Path) -> None:
    words = [
        "mountns",
        "tmpfs",
        "/mnt",
        "size=1m,mode=755",
        "show",
        "/usr",
        "/mnt/usr",
        "dir",
        "/mnt/proc",
        "755",
        "0",
        "0",
    ]
    for entry in host_facts().system:
        words += ["link", f"/mnt/{entry.name}", entry.target] if entry.target else []
    words += ["pidns", "2", "proc", "/mnt/proc", "root", "/mnt"]
    done = launched(tmp_path, *words, "exec", "/bin/cat", "/proc/self/mountinfo")
    assert {line.split()[4] for line in done.stdout.splitlines()} == {"/", "/usr", "/proc"}, done.stderr


def own_groups_of_v2() -> list[Path]:
    """Where a group of version 2 can be made, controllers or not."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [Path(line[4]) for line in lines if line[line.index("-") + 1] == "cgroup2" and os.access(line[4], os.W_OK)]


def test_a_child_is_born_in_its_group_of_version_2(tmp_path: Path) -> None:
    for place in own_groups_of_v2():
        group = place / f"stockade-test-{os.getpid()}"
        group.mkdir()
        try:
            done = launched(tmp_path, "cgroup", str(group), "pidns", "2", "exec", "/bin/cat", "/proc/self/cgroup")
            assert [line for line in done.stdout.splitlines() if line == f"0::/{group.name}"], done
        finally:
            group.rmdir()


def test_nothing_to_do_is_fine() -> None:
    assert run_operations([]) is None
    assert run_operations(["parent", str(os.getpid())]) is None


@given(st.integers(0, 2**31), st.integers(0, 2**31))
def test_identity_but_one(on_disk: int, shown: int) -> None:
    spans = [tuple(map(int, line.split())) for line in launch.identity_but(on_disk, shown).splitlines()]

    def image(value: int) -> int | None:
        found = [start + value - first for first, start, length in spans if first <= value < first + length]
        assert len(found) < 2
        return found[0] if found else None

    assert image(on_disk) == shown
    for other in {0, 1, on_disk - 1, on_disk + 1, shown - 1, shown + 1, 65534, 2**32 - 2} - {on_disk, shown, -1}:
        assert image(other) == other
    images = sorted((start, start + length) for _, start, length in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(images))


def processes_naming(text: str) -> list[int]:
    """Of this machine, but us."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if text.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def test_killed_at_any_moment_it_leaves_no_process(tmp_path: Path) -> None:
    """Each map of ids is held by a child for a moment; one not yet bound to its parent once stayed for ever."""
    (tmp_path / "launch").write_bytes(launch.launcher_bytes())
    (tmp_path / "launch").chmod(0o755)
    words = ["mountns"]
    for slot in map(str, range(8)):
        words += ["one", slot, str(tmp_path), "idmap", slot, "0 70000 1", "0 70000 1"]
    moments = random.Random(1)
    for _ in range(150):
        with subprocess.Popen([tmp_path / "launch", *words, "exec", "/bin/true"], stderr=subprocess.DEVNULL) as running:
            time.sleep(moments.random() * 0.012)
            running.kill()
    deadline = time.monotonic() + 30
    while (left := processes_naming(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
