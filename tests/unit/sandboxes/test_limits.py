"""Control groups: found in fake hierarchies of both versions, made and removed in the real one."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from stockade_sandbox.agent.jobs import AgentConfig
from stockade_sandbox.errors import PolicyNotEnforceable
from stockade_sandbox.limits.cgroups import (
    CgroupParent,
    Groups,
    guarantees,
    make_groups,
    places,
    remove_groups,
    settings,
    sweep,
)
from stockade_sandbox.limits.machine import usual_limits
from stockade_sandbox.policy import Limits, Policy


def fake_proc(base: Path, cgroup: str, mountinfo: str) -> Path:
    (base / "self").mkdir(parents=True)
    (base / "self/cgroup").write_text(cgroup)
    (base / "self/mountinfo").write_text(mountinfo)
    return base


def test_v1_group_is_made_below_our_own(tmp_path: Path) -> None:
    (tmp_path / "memory/mine").mkdir(parents=True)
    (tmp_path / "pids").mkdir()
    proc = fake_proc(
        tmp_path / "proc",
        "4:memory:/mine\n8:pids:/\n0::/\n",
        f"30 24 0:26 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
        f"31 24 0:27 / {tmp_path}/pids rw - cgroup c rw,pids\n",
    )
    assert places(proc) == [
        CgroupParent(tmp_path / "memory/mine", ("memory",), 1),
        CgroupParent(tmp_path / "pids", ("pids",), 1),
    ]


def test_v2_group_is_made_beside_our_own(tmp_path: Path) -> None:
    (tmp_path / "user/run").mkdir(parents=True)
    (tmp_path / "user/cgroup.subtree_control").write_text("cpu memory pids\n")
    (tmp_path / "user/cgroup.procs").write_text("")
    proc = fake_proc(
        tmp_path / "proc", "0::/user/run\n", f"30 24 0:26 / {tmp_path} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    assert places(proc) == [CgroupParent(tmp_path / "user", ("memory", "pids", "cpu"), 2)]


def test_v2_without_handed_down_controllers_is_nowhere(tmp_path: Path) -> None:
    (tmp_path / "user/run").mkdir(parents=True)
    (tmp_path / "user/cgroup.subtree_control").write_text("\n")
    proc = fake_proc(tmp_path / "proc", "0::/user/run\n", f"30 24 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert places(proc) == []


def test_bind_mounted_hierarchy_of_a_container(tmp_path: Path) -> None:
    proc = fake_proc(
        tmp_path / "proc", "4:memory:/docker/abc\n", f"30 24 0:26 /docker/abc {tmp_path} rw - cgroup cgroup rw,memory\n"
    )
    assert places(proc) == [CgroupParent(tmp_path, ("memory",), 1)]


def test_settings_of_both_versions() -> None:
    limits = Limits(memory_bytes=1000, processes=7)
    assert settings(CgroupParent(Path("/x"), ("memory",), 1), limits)[0] == ("memory.limit_in_bytes", "1000")
    assert settings(CgroupParent(Path("/x"), ("memory", "pids"), 2), limits) == [
        ("memory.max", "1000"), ("?memory.swap.max", "0"), ("?memory.oom.group", "0"), ("pids.max", "7"),
    ]  # fmt: skip
    assert settings(CgroupParent(Path("/x"), ("memory", "pids"), 2), Limits(memory_bytes=0, processes=0)) == []


def test_processor_time_in_both_versions() -> None:
    """As cpu(7)'s Documentation/scheduler/sched-bwc and admin-guide/cgroup-v2 have it; never less than 1 ms."""
    limits = Limits(memory_bytes=0, processes=0, cpus=1.5)
    assert settings(CgroupParent(Path("/x"), ("cpu",), 1), limits) == [
        ("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000"),
    ]  # fmt: skip
    assert settings(CgroupParent(Path("/x"), ("cpu", "memory"), 2), limits) == [("cpu.max", "150000 100000")]
    least = Limits(memory_bytes=0, processes=0, cpus=0.001)
    assert settings(CgroupParent(Path("/x"), ("cpu",), 2), least) == [("cpu.max", "1000 100000")]
    assert "processor time: 1.5 processors in total" in guarantees(limits, frozenset({"cpu"}), 0)


def test_processor_time_is_refused_where_it_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(PolicyNotEnforceable, match="processor time"):
        make_groups(Limits(cpus=1, memory_bytes=0, processes=0), [CgroupParent(tmp_path, ("pids",), 2)])
    assert list(tmp_path.iterdir()) == []


def test_groups_are_made_and_removed(tmp_path: Path) -> None:
    groups = make_groups(Limits(memory_bytes=1 << 26, processes=9), [CgroupParent(tmp_path, ("pids",), 2)])
    (folder,) = groups.folders
    assert (folder / "pids.max").read_text() == "9"
    (folder / "pids.max").unlink()  # a real hierarchy's files need no removing
    assert remove_groups(groups) == []
    assert not folder.exists()


def test_a_refusing_place_is_left_out(tmp_path: Path) -> None:
    groups = make_groups(Limits(), [CgroupParent(tmp_path / "missing", ("memory",), 1)])
    assert groups == Groups((), frozenset())


def test_only_stale_groups_are_swept(tmp_path: Path) -> None:
    for name in (f"stockade-{os.getpid()}-77-abcd", "stockade-999999-5-abcd", "stockade-1-notours", "other"):
        (tmp_path / name).mkdir()
    removed = sweep([CgroupParent(tmp_path, ("pids",), 1)], started=lambda pid: 77 if pid == os.getpid() else None)
    assert [path.name for path in removed] == ["stockade-999999-5-abcd"]
    assert len(list(tmp_path.iterdir())) == 3


def test_guarantees_say_what_is_not_a_total() -> None:
    assert "not as a total" in guarantees(Limits(), frozenset(), 5)[0]
    assert "in total" in guarantees(Limits(), frozenset({"memory"}), 5)[0]


@pytest.mark.parametrize(
    ("limits", "wanted", "seconds"),
    [
        (Limits(), None, 60),
        (Limits(), 5, 5),
        (Limits(), 120, 120),
        (Limits(), 9999, 600),
        (Limits(command_timeout_s=30, longest_command_s=30), 31, 30),
        (Limits(command_timeout_s=900), 5000, 900),
        (Limits(command_timeout_s=0), None, 0),
        (Limits(command_timeout_s=0), 9999, 9999),
        (Limits(longest_command_s=0), 9999, 9999),
    ],
)
def test_a_command_gets_the_time_that_it_asks_for_up_to_the_longest(
    limits: Limits, wanted: float | None, seconds: float
) -> None:
    assert AgentConfig.of(Policy(limits=limits)).seconds(wanted) == seconds


@pytest.mark.parametrize(
    ("meminfo", "files", "memory"),
    [
        ("MemTotal:       32768000 kB\nMemFree: 1 kB\n", {}, 32768000 * 512),
        ("MemTotal:       1024000 kB\n", {}, 2 << 30),
        ("MemTotal:       32768000 kB\n", {"sys/fs/cgroup/memory.max": "8589934592\n"}, 4 << 30),
        ("MemTotal:       32768000 kB\n", {"sys/fs/cgroup/memory.max": "max\n"}, 32768000 * 512),
        ("MemTotal:       32768000 kB\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "6442450944\n"}, 3 << 30),
        ("", {}, 2 << 30),
    ],
)
def test_where_nobody_says_a_limit_it_is_by_what_the_machine_has(
    tmp_path: Path, meminfo: str, files: dict[str, str], memory: int
) -> None:
    (tmp_path / "groups").mkdir()
    fake_proc(tmp_path / "proc", "4:memory:/\n0::/\n", f"30 24 0:26 / {tmp_path}/groups rw - cgroup cgroup rw,memory\n")
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for processors, processes in ((2, 256), (32, 2048)):
        found = usual_limits(tmp_path, tmp_path, processors)
        assert (found["memory_bytes"], found["processes"]) == (memory, processes)


def test_without_a_control_group_each_process_has_two_gigabytes(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       32768000 kB\n")
    assert usual_limits(tmp_path, tmp_path, 2)["memory_bytes"] == 2 << 30


@pytest.mark.parametrize(("free", "disk"), [(8 << 30, 2), (80 << 30, 10), (800 << 30, 16)])
def test_of_the_disk_it_is_an_eighth_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, disk: int
) -> None:
    asked = list[Path]()

    def usage(place: Path) -> SimpleNamespace:
        asked.append(place)
        return SimpleNamespace(free=free)

    monkeypatch.setattr("shutil.disk_usage", usage)
    assert usual_limits(tmp_path / "not" / "yet")["disk_bytes"] == disk << 30
    assert asked == [tmp_path]
