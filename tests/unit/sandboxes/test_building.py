"""The place where tools are installed: what it starts from, what it is shut off from, and what is left of it."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stockade_sandbox.backends import seccomp
from stockade_sandbox.backends.bubblewrap.argv import Build, Launch, bubblewrap_argv, launch_operations
from stockade_sandbox.backends.building import SystemLayers, apt_hosts, copy_apt_sources, named_hosts
from stockade_sandbox.backends.host_info import Bwrap, HostFacts, TopEntry
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.policy import Network, Policy
from tests.conformance.ordinary_user import run_as_ordinary_user
from tests.unit.sandboxes.test_seccomp import interpret

ROOT = HostFacts(bwrap=Bwrap((0, 8), path="/usr/bin/bwrap"), uid=0, gid=0, stage="/mnt", top=(TopEntry("usr"),),
                 system=(TopEntry("usr"),))  # fmt: skip


def after(args: list[str], *first: str) -> list[str]:
    """What follows the first place of `first` in it."""
    where = [number for number in range(len(args)) if tuple(args[number : number + len(first)]) == first]
    assert where, f"{first} is not in {args}"
    return args[where[0] + len(first) :]


def test_a_run_with_layers_only_reads_them() -> None:
    policy = Policy(system=("/cache/a", "/cache/b"))
    args = bubblewrap_argv(policy, [], ROOT)
    assert after(args, "--ro-bind", "/layered-usr")[0] == "/usr"
    assert after(args, "--ro-bind", "/system-1/etc")[0] == "/etc"
    assert after(args, "--ro-bind", "/system-1/var/lib")[0] == "/var/lib"
    assert "/usr" not in args[args.index("/layered-usr") + 2 :]
    assert after(args, "--uid")[0] == "1000"
    ops = launch_operations(policy, [], ROOT, Launch(1, 7))
    assert after(ops, "overlay", "/mnt/layered-usr")[0] == "lowerdir=/mnt/system-1/usr:/mnt/system-0/usr:/mnt/usr"
    assert "idmap" not in ops


def test_bubblewrap_itself_is_never_taken_from_a_layer() -> None:
    ops = launch_operations(Policy(system=("/cache/a",)), [], ROOT, Launch(1, 7))
    assert after(ops, "show", "/usr")[0] == "/mnt/usr"
    assert ops.index("/mnt/layered-usr") > ops.index("/mnt/usr")


def test_a_build_writes_to_its_own_folder_only() -> None:
    policy, build = Policy(system=("/cache/a",)), Build("/cache/new", 7, mapped=True)
    args = bubblewrap_argv(policy, [], ROOT, building=True)
    assert after(args, "--bind", "/layered-usr")[0] == "/usr"
    assert [after(args, "--bind", f"/build/{name}")[0] for name in ("etc", "opt", "var")] == ["/etc", "/opt", "/var"]
    assert after(args, "--uid")[0] == "0"
    ops = launch_operations(policy, [], ROOT, Launch(1, 7, build=build))
    options = after(ops, "overlay", "/mnt/layered-usr")[0]
    assert options.startswith("lowerdir=/mnt/system-0/usr:/mnt/base-usr,upperdir=/mnt/build/usr,")
    assert ops.count("idmap") == 2
    unmapped = launch_operations(policy, [], ROOT, Launch(1, 7, build=Build("/cache/new", 7, mapped=False)))
    assert "idmap" not in unmapped


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_a_build_fakes_and_permits_nothing_more(machine: str) -> None:
    arch = seccomp.ARCHITECTURES[machine]
    usual, building_one = seccomp.assemble(arch), seccomp.assemble(arch, installing=True)
    done = 0x00050000
    faked = {seccomp.numbers()[name][arch.column] for name in seccomp.FAKED} - {None}
    for number in range(480):
        for mode in (0, 0o644, 0o4755, 0o2755):
            arguments = (mode, mode, mode, mode)
            before = interpret(usual, number, arch.audit, arguments)
            now = interpret(building_one, number, arch.audit, arguments)
            if number in faked:
                assert now == done
            elif now != before:
                assert (before, now) == (done | errno.EPERM, done), f"call {number} with mode {mode:o}"
    assert len(faked) >= 8


def test_package_sources_are_those_of_named_hosts(tmp_path: Path) -> None:
    machine = tmp_path / "apt"
    (machine / "sources.list.d").mkdir(parents=True)
    (machine / "sources.list").write_text(
        "# deb http://comment.example/ x main\ndeb http://one.example:8080/debian x main\n"
        "deb [arch=amd64] https://two.example/ubuntu x main\ndeb http://name:secret@three.example/ x main\n"
        "deb cdrom:[Debian]/ x main\ndeb http://[broken x main\n"
    )
    (machine / "sources.list.d/a.sources").write_text(
        "Types: deb\nURIs: http://one.example/a http://four.example/b\nSuites: x\n\nTypes: deb\n"
        "URIs: http://one.example/c\nSuites: x\n"
    )
    (machine / "sources.list.d/a.save").write_text("deb http://saved.example/ x main\n")
    assert apt_hosts(machine) == ("four.example", "one.example", "one.example:8080", "two.example")
    copy_apt_sources(tmp_path / "made", ("one.example",), machine)
    made = tmp_path / "made/sources.list.d"
    assert (made / "sources.list").read_text() == "deb http://one.example:8080/debian x main\n"
    assert (made / "a.sources").read_text() == "Types: deb\nURIs: http://one.example/c\nSuites: x\n\n"
    assert not (made / "a.save").exists()


def test_registries_have_names() -> None:
    assert named_hosts(("pypi", "example.org", "pypi")) == ("pypi.org", "files.pythonhosted.org", "example.org")
    assert named_hosts(("apt",)) == apt_hosts()


def test_the_base_is_the_same_until_something_is_installed() -> None:
    assert SystemLayers().base() == SystemLayers().base()


def test_no_network_without_hosts(tmp_path: Path) -> None:
    made = SystemLayers()
    made.begin(tmp_path / "layer", (), ())
    box = made.sandbox(tmp_path / "layer", (), (), {}, tmp_path / "run")
    assert "no network interface but an empty loopback" in box.guarantees
    assert Network().mode == "none"


AS_ANYBODY = """
import anyio
from pathlib import Path
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.backends.building import SystemLayers
from stockade_sandbox.policy import Policy
from stockade.tools.tool_files import CommandTool
from stockade.tools.layers import Layers

HI = "printf '#!/bin/sh\\\\necho hi\\\\n' > /usr/local/bin/hi && chmod +x /usr/local/bin/hi"

async def main():
    base = Path.home() / "work"
    layers = Layers(base / "layers", SystemLayers())
    one = await layers.layer(CommandTool(name="hi", install=(HI, "test $(id -u) = 0")), ())
    more = ("hi > /usr/share/said", "chown 7:7 /usr/share/said")
    two = await layers.layer(CommandTool(name="two", install=more), (one,))
    async with BubblewrapSandbox(Policy(system=(one, two)), (), base) as box:
        print((await box.run("hi; cat /usr/share/said; id -u; touch /usr/x")).output.decode(), end="")

anyio.run(main)
"""


def test_an_ordinary_user_installs_as_well() -> None:
    command = [sys.executable, "-c", AS_ANYBODY]
    home = Path(tempfile.mkdtemp(prefix="stockade-user-"))  # pytest's own folders are closed to others
    try:
        if os.geteuid() == 0:
            done = run_as_ordinary_user(["env", f"PYTHONPATH={os.pathsep.join(sys.path)}", *command], home)
        else:
            environment = {**os.environ, "HOME": str(home)}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    finally:
        remove_tree(home)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hi\nhi\n1000\ntouch: cannot touch '/usr/x': Read-only file system\n"
