"""From policy to the command lines and configurations of container engines: golden, without root or engine."""

import itertools
import json
import re
from dataclasses import replace

import pytest

from stockade.core.errors import PolicyNotEnforceable, UsageError
from stockade_sandbox.backends.containers.argv import Launched, container_argv, environment_file, scratch, variables
from stockade_sandbox.backends.containers.engines import Engine, engine_complaint
from stockade_sandbox.backends.containers.gvisor import bundle_config
from stockade_sandbox.backends.host_info import Bwrap, HostFacts, TopEntry
from stockade_sandbox.policy import MIB, CopyRule, FolderRule, Limits, Network, Policy
from stockade_sandbox.results import FolderLayer

DOCKER = Engine(
    name="docker", command=("/usr/bin/docker",), version="20.10", uid=0, gid=0, open_files=20000, processes=9000
)
PODMAN = Engine(
    name="podman", command=("/usr/bin/podman", "--runtime", "runc"), version="4.3", uid=1001, gid=1002,
    open_files=4096, processes=3000,
)  # fmt: skip
ROOT = Launched(name="stockade-n", own="/st/own", image="sha256:1", uid=7, gid=7, stage="/st")
USER = Launched(name="stockade-n", own="/run/own", image="sha256:1", uid=1001, gid=1002)
OVERLAY = FolderLayer(host="/home/me/a,b", inside="/workspace", mode="overlay", strategy="overlay", layer="/l/0")
COPY = FolderLayer(host="/home/me/p", inside="/workspace", mode="overlay", strategy="copy", layer="/l/0")
READ = FolderLayer(host="/home/me/r", inside="/data", mode="ro", strategy="direct")
LIMITS = Limits(memory_bytes=256 * MIB, processes=64, disk_bytes=16 * MIB, open_files=100)


def test_docker_as_root_is_golden() -> None:
    argv = container_argv(Policy(limits=LIMITS), [OVERLAY], DOCKER, ROOT)
    text = " ".join(argv[: argv.index("/bin/bash") + 1])
    assert text == (
        "/usr/bin/docker run --rm --interactive --name stockade-n --label stockade=stockade-n "
        "--network none --cap-drop ALL --security-opt no-new-privileges "
        "--read-only --ipc none --pull never --hostname sandbox --log-driver none --no-healthcheck --sig-proxy=false "
        "--stop-timeout=0 --user 7:7 --tmpfs /sys:ro,nosuid,nodev,noexec,mode=555,size=4k --cgroupns private "
        "--memory 268435456 --memory-swap 268435456 --pids-limit 72 --ulimit nofile=1024:1024 --ulimit core=0:0 "
        + "".join(
            f"--mount type=bind,source=/st/own/etc/{name},target=/etc/{name},readonly,bind-nonrecursive=true "
            for name in ("passwd", "group", "hosts", "hostname", "resolv.conf", "nsswitch.conf")
        )
        + "--mount type=bind,source=/st/own,target=/.stockade,readonly,bind-nonrecursive=true "
        "--mount type=bind,source=/st/scratch/tmp,target=/tmp "
        "--mount type=bind,source=/st/scratch/home,target=/home/agent "
        "--mount type=bind,source=/st/scratch/var-tmp,target=/var/tmp "
        "--mount type=bind,source=/st/scratch/run,target=/run "
        "--mount type=bind,source=/st/scratch/shm,target=/dev/shm "
        "--mount type=bind,source=/st/folder-0,target=/workspace "
        "--workdir / --entrypoint /bin/bash"
    )
    assert argv[argv.index("/bin/bash") + 1] == "sha256:1"
    assert argv[-7:] == ["/.stockade/launch", "keep", "filter", "/.stockade/filter", "exec", "/.stockade/agent", "0"]


@pytest.mark.parametrize("engine", [DOCKER, PODMAN], ids=lambda engine: engine.name)
def test_installed_tools_are_the_system_that_is_seen(engine: Engine) -> None:
    host = HostFacts(Bwrap((0, 8)), 0, 0, top=(TopEntry("usr"), TopEntry("bin", "usr/bin")), etc=("ssl/certs",))
    policy, launched = Policy(system=("/t/a", "/t/b")), replace(ROOT, host=host)
    argv = container_argv(policy, [], engine, launched)
    sources = dict(re.findall(r"source=(\S+?),target=(\S+?),readonly,bind-nonrec", " ".join(argv)))
    assert {source: sources[source] for source in sources if not source.startswith("/st/own")} == {
        "/st/layered-usr": "/usr", "/st/system-1/etc": "/etc", "/st/system-1/opt": "/opt",
        "/st/system-1/var/lib": "/var/lib", "/st/system-1/var/cache": "/var/cache",
    }  # fmt: skip
    mounts = bundle_config(policy, [], launched, "/st/points")["mounts"]
    assert {mount["destination"]: mount["source"] for mount in mounts}["/usr"] == "/st/layered-usr"
    assert [mount["destination"] for mount in mounts].index("/etc") < [mount["destination"] for mount in mounts].index(
        "/etc/passwd"
    )
    for other in (replace(launched, stage=None), replace(launched, host=None)):
        with pytest.raises(PolicyNotEnforceable, match="use --sandbox bubblewrap"):
            container_argv(policy, [], engine, other)


def test_podman_masks_what_tells_of_the_machine() -> None:
    (masked,) = [word for word in container_argv(Policy(), [], PODMAN, USER) if word.startswith("mask=")]
    assert {"/sys", "/proc/cmdline", "/proc/iomem"} <= set(masked.removeprefix("mask=").split(":"))


def test_never_privileged_published_or_near_the_engine() -> None:
    for engine, launched in ((DOCKER, ROOT), (PODMAN, USER)):
        argv = container_argv(Policy(), [COPY, READ], engine, launched)
        text = " ".join(argv)
        for word in (
            "--privileged",
            "--publish",
            "-p ",
            "docker.sock",
            "podman.sock",
            "--cap-add",
            "--device",
            "--env",
        ):
            assert word not in text.partition("/bin/bash")[0]


def test_podman_as_a_user_keeps_the_uid_and_bounds_scratch() -> None:
    argv = container_argv(Policy(limits=LIMITS), [COPY, READ], PODMAN, USER)
    assert argv[: argv.index("run") + 1] == ["/usr/bin/podman", "--runtime", "runc", "run"]
    pairs = list(itertools.pairwise(argv))
    assert ("--userns", "keep-id") in pairs
    assert ("--user", "1001:1002") in pairs
    assert ("--ulimit", "nproc=3000:3000") in pairs
    assert ("--mount", "type=bind,source=/l/0/copy,target=/workspace,bind-nonrecursive") in pairs
    assert ("--mount", "type=bind,source=/home/me/r,target=/data,readonly,bind-nonrecursive") in pairs
    sizes = [int(word.rpartition("size=")[2]) for flag, word in pairs if flag == "--tmpfs"]
    assert len(sizes) == 5
    assert 15 * MIB < sum(sizes) <= 16 * MIB
    owners = [word for flag, word in pairs if flag == "--tmpfs" and "uid=" in word]
    assert owners == []  # podman: unknown mount option


def test_scratch_leaves_room_for_a_workspace_without_a_folder() -> None:
    kept, made = scratch(Policy(), (), "/st")
    assert ("/workspace" in [bind.target for bind in kept], made) == (True, [])
    kept, made = scratch(Policy(), ("/workspace",), None)
    assert ("/workspace" in [one.target for one in made], kept) == (False, [])


def test_unlimited_is_said_so() -> None:
    limits = Limits(memory_bytes=0, processes=0, disk_bytes=0, open_files=0)
    argv = container_argv(Policy(limits=limits), [], DOCKER, ROOT)
    assert "--memory" not in argv
    assert argv[argv.index("--pids-limit") + 1] == "-1"
    assert f"nofile={DOCKER.open_files}:{DOCKER.open_files}" in argv


@pytest.mark.parametrize("path", ["/a,b", '/a"b', "/a\nb"])
def test_paths_an_engine_would_misread_are_refused(path: str) -> None:
    layer = FolderLayer(host=path, inside="/workspace", mode="ro", strategy="direct")
    with pytest.raises(UsageError, match="comma"):
        container_argv(Policy(), [layer], PODMAN, USER)


@pytest.mark.parametrize("inside", ["/.stockade", "/.stockade/agent"])
def test_the_agents_place_is_taken(inside: str) -> None:
    layer = FolderLayer(host="/a", inside=inside, mode="ro", strategy="direct")
    with pytest.raises(UsageError):
        container_argv(Policy(), [layer], DOCKER, ROOT)


def test_a_network_is_variables_and_no_interface() -> None:
    policy = Policy(network=Network(mode="open"), environment={"no_proxy": "mine"})
    assert {name: variables(policy)[name] for name in ("https_proxy", "no_proxy")} == {
        "https_proxy": "http://127.0.0.1:3128",
        "no_proxy": "mine",
    }
    given = container_argv(policy, [], DOCKER, ROOT)
    assert given[given.index("--network") + 1] == "none"
    process = bundle_config(policy, [], ROOT, "/root")["process"]
    assert "http_proxy=http://127.0.0.1:3128" in process["env"]


def test_the_environment_file_is_exact() -> None:
    assert environment_file({"A": "1\n2", "B": ""}) == b"A=1\n2\0B=\0"
    for name in ("a.b", "1A", "A B", "Ä"):
        with pytest.raises(UsageError):
            environment_file({name: "x"})


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        ("docker: Error response from daemon: no such image: x.\nSee 'docker run --help'.\n", "no such image: x."),
        ("WARNING: no swap\nError: runc: cannot do it\n", "runc: cannot do it"),
        ("", "it did not say why"),
        ("just this\n", "just this"),
    ],
)
def test_an_engines_complaint_is_its_reason(stderr: str, line: str) -> None:
    assert engine_complaint(stderr) == line


def test_the_gvisor_bundle_is_golden() -> None:
    policy = Policy(
        folders=(FolderRule(host="/home/me/p"),),
        copies=(CopyRule(host="/x", inside="/in/x"),),
        limits=LIMITS,
        environment={"A": "1"},
    )
    launched = Launched(name="n", own="/st/own", image="", uid=7, gid=7, stage="/st", copies=("/c/0",))
    config = bundle_config(policy, [OVERLAY], launched, "/st/points")
    assert config["root"] == {"path": "/st/points", "readonly": True}
    assert " ".join(config["process"]["args"]) == (
        "/.stockade/launch write /sys/fs/cgroup/pids/pids.max 72 tmpfs /sys size=4k,mode=0555 "
        "tmpfs /dev/net size=4k,mode=0555 tmpfs /proc/1 size=4k,mode=0555 remove /dev/fuse "
        "bound ids 7 7 keep filter /.stockade/filter exec /.stockade/agent 0"
    )
    assert config["process"]["noNewPrivileges"] is True
    assert config["process"]["capabilities"]["ambient"] == config["process"]["capabilities"]["inheritable"] == []
    assert config["process"]["env"][-1] == "A=1"
    assert config["linux"]["resources"] == {"memory": {"limit": 256 * MIB, "swap": 256 * MIB}}
    assert {space["type"] for space in config["linux"]["namespaces"]} == {"pid", "network", "ipc", "uts", "mount"}
    places = {mount["destination"]: mount for mount in config["mounts"]}
    assert places["/workspace"]["source"] == "/st/folder-0"
    assert "rw" in places["/workspace"]["options"]
    assert "ro" in places["/.stockade"]["options"]
    assert places["/in/x"]["source"] == "/st/copy-0"
    assert json.loads(json.dumps(config)) == config
