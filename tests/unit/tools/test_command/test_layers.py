"""Installing for real, without a network: what is made once is there in every run, and a failure leaves nothing."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import CommandFailed, PolicyNotEnforceable, UsageError
from stockade.core.ports import Sandbox, Toolbox
from stockade.tools.command_file import usage_text
from stockade.tools.layers import UNUSED_S, Layers, check_layers, prepare_tool
from stockade.tools.program import InstalledTools
from stockade.tools.tool_files import CommandTool, ToolFile
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.backends.building import SystemLayers
from stockade_sandbox.backends.layers import copied_layers
from stockade_sandbox.policy import FolderRule, Policy

pytestmark = pytest.mark.anyio

HI = "printf '#!/bin/sh\\necho hi from $0\\n' > /usr/local/bin/hi && chmod +x /usr/local/bin/hi"


def layers(tmp_path: Path, told: list[str] | None = None) -> Layers:
    heard = [] if told is None else told
    return Layers(tmp_path / "layers", SystemLayers(), lambda words, _done, _total: heard.append(words))


def exists(path: str) -> bool:
    return Path(path).exists()


def moved(place: str, target: Path) -> Path:
    Path(place).rename(target)
    return target


@asynccontextmanager
async def run_with(tool: CommandTool, policy: Policy, tmp_path: Path) -> AsyncIterator[tuple[Sandbox, Toolbox]]:
    async with BubblewrapSandbox(policy, prepare_layers(policy, tmp_path / "run"), tmp_path) as box:
        async with InstalledTools((tool,), box) as tools:
            yield box, tools


async def said(box: Sandbox, command: str) -> str:
    result = await box.run(command)
    return result.output.decode().strip()


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.endswith(".lock")]


async def test_what_is_installed_once_is_there_in_every_run(tmp_path: Path) -> None:
    told: list[str] = []
    tool = CommandTool(name="hi", description="says hi", usage="hi", install=(HI,), verify=("hi",))
    first = await prepare_tool(tool, Policy(), layers(tmp_path, told))
    assert [words.partition(":")[0] for words in told] == ["installing hi", "verifying hi"]
    told.clear()
    second = await prepare_tool(tool, Policy(), layers(tmp_path, told))
    assert second == first
    assert told == []
    async with run_with(tool, second, tmp_path) as (box, tools):
        assert tools.specs == ()
        assert await said(box, "hi; id -u") == "hi from /usr/local/bin/hi\n1000"
        assert "Read-only" in await said(box, "echo x > /usr/local/bin/hi")
        assert "Read-only" in await said(box, "echo x > /etc/new; rm /usr/local/bin/hi")
    assert "says hi\nUse it from the shell:\nhi" in usage_text(tool)
    assert not exists("/usr/local/bin/hi")


async def test_the_same_layer_serves_an_unchanged_definition_only(tmp_path: Path) -> None:
    made = layers(tmp_path)
    (tmp_path / "one").write_text("1")
    base = CommandTool(name="a", install=("true",), folder=str(tmp_path))
    with_file = base.model_copy(update={"files": (ToolFile(host="one", inside="/opt/one"),)})
    others = [
        base.model_copy(update={"install": ("true", "true")}),
        base.model_copy(update={"environment": {"A": "1"}}),
        with_file,
    ]
    first = await made.layer(base, ())
    places = [first, *[await made.layer(other, ()) for other in others], await made.layer(base, (first,))]
    (tmp_path / "one").write_text("2")
    places.append(await made.layer(with_file, ()))
    assert len(set(places)) == len(places)
    assert await made.layer(base.model_copy(update={"usage": "other", "hosts": ("pypi",)}), ()) == first


async def test_tools_lie_over_each_other(tmp_path: Path) -> None:
    made = layers(tmp_path)
    one = await prepare_tool(CommandTool(name="hi", install=(HI, "mkdir /opt/hi /etc/hi")), Policy(), made)
    more = "hi > /usr/local/share/said; touch /opt/hi/two /etc/hi/two; rm /usr/local/bin/hi"
    over = CommandTool(name="two", install=(more,))
    two = await prepare_tool(over, one, made)
    async with run_with(over, two, tmp_path) as (box, _):
        text = await said(box, "cat /usr/local/share/said; ls /opt/hi /etc/hi; hi")
    assert text.startswith("hi from /usr/local/bin/hi\n/etc/hi:\ntwo\n\n/opt/hi:\ntwo\n")
    assert "not found" in text


async def test_a_failed_command_is_named_with_its_last_words_and_leaves_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    bad = CommandTool(name="bad", install=("true", "seq 40; echo no such thing \x1b[2J >&2; exit 3", "true"))
    with pytest.raises(CommandFailed) as caught:
        await prepare_tool(bad, Policy(), layers(tmp_path, told))
    message, output = caught.value.message, caught.value.output
    assert message.startswith("installing bad failed: `seq 40; echo no such thing")
    assert message.endswith("ended with status 3")
    assert output[-3:] == ("39", "40", "no such thing  [2J")
    assert len(output) == 15
    assert len(told) == 2
    unverified = CommandTool(name="bad", install=(HI,), verify=("hi", "no-such-program --version"))
    with pytest.raises(UsageError, match="verifying bad failed: `no-such-program --version` ended with status 127"):
        await prepare_tool(unverified, Policy(), layers(tmp_path))
    assert left_in(tmp_path / "layers") == []


async def test_a_refused_host_is_named(tmp_path: Path) -> None:
    asks = CommandTool(name="asks", install=("curl -sSf http://example.org/x",), hosts=("example.com",))
    with pytest.raises(CommandFailed) as caught:
        await prepare_tool(asks, Policy(), layers(tmp_path))
    assert "example.org is not on the --net allow list" in str(caught.value.hint)
    assert "hosts" in str(caught.value.hint)


async def test_without_hosts_there_is_no_network(tmp_path: Path) -> None:
    asks = CommandTool(name="asks", install=("curl -sSf --max-time 5 http://example.org/x",))
    with pytest.raises(UsageError, match="ended with status 6"):
        await prepare_tool(asks, Policy(), layers(tmp_path))


async def test_one_builds_and_the_others_wait(tmp_path: Path) -> None:
    told: list[str] = []
    tool = CommandTool(name="hi", install=(HI, "sleep 0.5"))
    places: list[str] = []

    async def one() -> None:
        places.append(await layers(tmp_path, told).layer(tool, ()))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert len(set(places)) == 1
    assert len([words for words in told if words.startswith("installing")]) == 2
    assert "waiting for another run that installs hi" in told


async def test_a_cut_install_leaves_no_half_layer(tmp_path: Path) -> None:
    tool = CommandTool(name="hi", install=(HI, "sleep 1000"))

    def cut(words: str, _done: int, _total: int) -> None:
        if "sleep" in words:
            group.cancel_scope.cancel()

    made = Layers(tmp_path / "layers", SystemLayers(), cut)
    async with anyio.create_task_group() as group:
        await made.layer(tool, ())
    assert left_in(tmp_path / "layers") == []


async def test_what_a_killed_install_left_is_removed_by_the_next(tmp_path: Path) -> None:
    tool = CommandTool(name="hi", install=(HI,))
    place = await layers(tmp_path).layer(tool, ())
    name = place.rpartition("/")[2]
    half = moved(place, tmp_path / "layers" / f".{name}.building")
    (half / "whole").unlink()
    assert await layers(tmp_path).layer(tool, ()) == place
    assert left_in(tmp_path / "layers") == [name]


async def test_what_nobody_uses_makes_room(tmp_path: Path) -> None:
    made = layers(tmp_path)
    old, fresh = [await made.layer(CommandTool(name=name, install=(f": {name}",)), ()) for name in ("old", "fresh")]
    long_ago = (tmp_path / fresh / "whole").stat().st_mtime - UNUSED_S - 60
    for place in (old, fresh):
        os.utime(f"{place}/whole", (long_ago, long_ago))
    assert await made.layer(CommandTool(name="fresh", install=(": fresh",)), ()) == fresh
    new = await made.layer(CommandTool(name="new", install=(": new",)), ())
    assert [exists(place) for place in (old, fresh, new)] == [False, True, True]


async def test_files_arrive_byte_for_byte_with_their_modes(tmp_path: Path) -> None:
    """Microbots wrote them by `echo`, which expanded what looked like shell."""
    hostile = b'$HOME `id` """ \'x\' \\n\n\x00\xff no newline at the end'
    (tmp_path / "data").write_bytes(hostile)
    tool = CommandTool(
        name="files",
        folder=str(tmp_path),
        files=(
            ToolFile(host="data", inside="/usr/share/files/a b", mode="755"),
            ToolFile(host="data", inside="/tmp/files/run", mode="600"),
        ),
    )
    ready = await prepare_tool(tool, Policy(), layers(tmp_path))
    async with run_with(tool, ready, tmp_path) as (box, _):
        for path, mode in (("/usr/share/files/a b", "755"), ("/tmp/files/run", "600")):
            assert (await box.exec(["cat", path])).stdout == hostile
            assert (await box.exec(["stat", "-c%a", path])).stdout.decode().strip() == mode
    (tmp_path / "data").unlink()
    with pytest.raises(UsageError, match="the tool files needs the file"):
        await prepare_tool(tool, Policy(), layers(tmp_path))


async def test_variables_arrive_as_they_are(tmp_path: Path) -> None:
    """Microbots exported them between double quotes."""
    odd = "a \"b\" $(id) `id` 'c'\nd"
    tool = CommandTool(name="env", environment={"ODD": odd}, pass_environment=("KEY_OF_MINE",))
    ready = await prepare_tool(tool, Policy(environment={"OWN": "1"}), layers(tmp_path), environ={"KEY_OF_MINE": odd})
    async with run_with(tool, ready, tmp_path) as (box, _):
        assert await said(box, 'printf %s "$ODD"') == odd
        assert await said(box, 'printf %s "$KEY_OF_MINE$OWN"') == odd + "1"
    with pytest.raises(UsageError, match="KEY_OF_MINE"):
        await prepare_tool(tool, Policy(), layers(tmp_path), environ={})
    kept = await prepare_tool(tool, Policy(environment={"ODD": "mine"}), layers(tmp_path), environ={"KEY_OF_MINE": "1"})
    assert kept.environment["ODD"] == "mine"


async def test_set_up_at_the_start_and_undone_at_the_end_whatever_happens(tmp_path: Path) -> None:
    """Microbots never called what uninstalls."""
    folder = tmp_path / "folder"
    folder.mkdir()
    policy = Policy(folders=(FolderRule(host=str(folder), mode="rw"),))

    def noting(name: str) -> CommandTool:
        def commands(what: str) -> Sequence[str]:
            return (f"echo {what} {name} >> /workspace/log",)

        return CommandTool(name=name, verify=commands("verify"), setup=commands("setup"),
                           uninstall=("false", *commands("uninstall")))  # fmt: skip

    async with BubblewrapSandbox(policy, prepare_layers(policy, tmp_path / "run"), tmp_path) as box:
        with pytest.raises(ValueError, match="of the run"):
            async with InstalledTools((noting("a"), noting("b")), box):
                raise ValueError("of the run")
    assert (folder / "log").read_text().split("\n")[:-1] == [
        "verify a", "setup a", "verify b", "setup b", "uninstall b", "uninstall a"
    ]  # fmt: skip


async def test_a_set_up_that_fails_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    async with BubblewrapSandbox(Policy(), (), tmp_path) as box:
        with pytest.raises(UsageError, match="setting up a failed: `echo oh no; exit 9` ended with status 9") as caught:
            async with InstalledTools((CommandTool(name="a", setup=("echo oh no; exit 9",)),), box):
                raise AssertionError
    assert isinstance(caught.value, CommandFailed)
    assert caught.value.output == ("oh no",)


async def test_a_run_goes_on_only_with_the_layer_it_had(tmp_path: Path) -> None:
    tool = CommandTool(name="hi", install=(HI,))
    ready = await prepare_tool(tool, Policy(), layers(tmp_path))
    check_layers(ready)
    moved(ready.system[0], tmp_path / "gone")
    with pytest.raises(UsageError, match="not installed any more"):
        check_layers(ready)


async def test_hosts_of_a_run_are_added_to_its_network(tmp_path: Path) -> None:
    tool = CommandTool(name="hi", runtime_hosts=("example.org",))
    ready = await prepare_tool(tool, Policy(), layers(tmp_path))
    assert (ready.network.mode, ready.network.hosts) == ("allow", ("example.org",))


def test_other_sandboxes_refuse_what_they_cannot_mount(tmp_path: Path) -> None:
    policy = Policy(system=(str(tmp_path),))
    with pytest.raises(PolicyNotEnforceable, match="--sandbox bubblewrap"):
        copied_layers(policy, tmp_path)
    with pytest.raises(PolicyNotEnforceable, match="leave out --image"):
        prepare_layers(replace(policy, rootfs="/x"), tmp_path)


async def test_the_one_who_installs_is_root_by_name_only(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    tries = (
        "test $(id -u) = 0",
        "grep -q '^CapEff:.0000000000000000$' /proc/self/status",
        "! unshare -m true",
        "! mount -t tmpfs none /mnt",
        f"! test -e {outside}",
        "! test -e /etc/shadow",
        "! cat /var/log/* /root/.bashrc",
        "touch /usr/bin/owned && chown 7:7 /usr/bin/owned && chmod 6755 /usr/bin/owned",
        "cp /bin/true /usr/bin/other && rm /usr/bin/other",
        "echo root::0:0::/:/bin/sh > /etc/passwd",
        "ln -s /root /opt/link",
        "mkfifo /etc/pipe /usr/share/pipe",
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/etc/socket\")'",
        "mkdir -m 700 /etc/closed && touch /etc/closed/file && chmod 000 /etc/closed/file",
    )
    place = tmp_path / await layers(tmp_path).layer(CommandTool(name="hostile", install=tries), ())
    owned = (place / "usr/bin/owned").stat()
    assert owned.st_mode & 0o6000 == 0
    assert owned.st_uid == os.geteuid()
    assert (place / "opt/link").is_symlink()
    assert not (place / "etc/pipe").exists()
    assert not (place / "etc/socket").exists()
    assert (place / "etc/closed/file").stat().st_mode & 0o444 == 0o444
    await layers(tmp_path).layer(CommandTool(name="over", install=("true",)), (str(place),))
    assert not exists("/usr/bin/owned")
