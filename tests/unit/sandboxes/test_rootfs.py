"""What a sandbox sees beside the folders."""

import pytest

from stockade.core.errors import UsageError
from stockade_sandbox.backends.host_info import Bwrap, HostFacts, TopEntry
from stockade_sandbox.backends.rootfs import check_inside, environment, scratch_bytes, view
from stockade_sandbox.policy import GIB, MIB, Limits, Policy

HOST = HostFacts(Bwrap((0, 8, 0), path="/usr/bin/bwrap"), uid=1001, gid=1001, top=(TopEntry("usr"),))


@pytest.mark.parametrize("path", ["/", "/usr", "/usr/local/x", "/etc", "/etc/ssl", "/proc/1", "/dev", "/sys/fs", "/tmp",
                                  "/home", "/home/agent", "/lib64", "relative", "/a/../etc", "/x\0y"])  # fmt: skip
def test_places_of_the_system_are_refused(path: str) -> None:
    with pytest.raises(UsageError):
        check_inside(path)


@pytest.mark.parametrize("path", ["/workspace", "/data", "/tmp/in", "/home/agent/x", "/usrlocal"])
def test_other_places_are_fine(path: str) -> None:
    assert check_inside(path) == path


def test_environment_is_the_standard_one_and_what_was_named() -> None:
    assert set(environment({"A": "1"})) == {"HOME", "LANG", "PATH", "TERM", "USER", "A"}
    assert environment({"PATH": "/x"})["PATH"] == "/x"


@pytest.mark.parametrize("given", [{"A=B": "1"}, {"": "1"}, {"A": "\0"}, {"A\0": ""}])
def test_impossible_variables_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        environment(given)


def test_scratch_is_bounded_by_disk_and_memory() -> None:
    assert scratch_bytes(Limits(disk_bytes=3 * GIB, memory_bytes=2 * GIB)) == GIB
    assert scratch_bytes(Limits(disk_bytes=64 * MIB)) == 64 * MIB
    assert scratch_bytes(Limits(disk_bytes=0, memory_bytes=0)) == 0
    assert scratch_bytes(Limits(disk_bytes=1, memory_bytes=0)) == MIB


def test_synthetic_etc_tells_nothing_of_the_host() -> None:
    args = view(Policy(), HOST, ())
    assert [word for word in args if word.startswith("/etc")] == ["/etc", "/etc"]


def test_a_root_file_system_replaces_the_hosts() -> None:
    host = HostFacts(HOST.bwrap, 0, 0, top=(TopEntry("usr"), TopEntry("etc"), TopEntry("bin", "usr/bin")))
    args = view(Policy(rootfs="/images/a"), host, ())
    assert args[:9] == [
        "--ro-bind",
        "/root/usr",
        "/usr",
        "--ro-bind",
        "/root/etc",
        "/etc",
        "--symlink",
        "usr/bin",
        "/bin",
    ]
    assert [word for word in args if word.startswith(("/usr", "/etc"))] == ["/usr", "/etc", "/usr/bin/python3"]


def test_scratch_gives_way_to_a_folder_at_the_workspace() -> None:
    assert "/scratch/workspace" in view(Policy(), HOST, ())
    assert "/scratch/workspace" not in view(Policy(), HOST, ("/workspace",))
