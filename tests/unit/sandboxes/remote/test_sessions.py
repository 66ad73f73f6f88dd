"""A sandbox over HTTP and a connection that breaks: everything is done once, and what came of it arrives."""

from dataclasses import replace

import anyio
import pytest

from stockade.core.errors import ActionFailed, PolicyNotEnforceable, SandboxDied, SandboxFailed, UsageError
from stockade_sandbox.backends.remote.allowed import Allowed, Root
from stockade_sandbox.backends.remote.http import HttpSandbox
from stockade_sandbox.policy import CopyRule, FolderRule, Network, Policy
from stockade_sandbox.results import NetworkRequest
from tests.unit.sandboxes.remote.helpers import until
from tests.unit.sandboxes.remote.scene import TOKEN, Scene, scene

pytestmark = pytest.mark.anyio


def box_of(
    here: Scene, patience_s: float = 30.0, policy: Policy | None = None, *, restarts: bool = True
) -> HttpSandbox:
    return HttpSandbox(policy or Policy(), here.url, TOKEN, patience_s, restarts=restarts)


async def test_commands_and_programs_byte_by_byte() -> None:
    async with scene() as here:
        here.way.size = 3
        async with box_of(here) as box:
            assert (await box.run("ls")).stdout == b"did ls"
            done = await box.exec(["cat", "x"], b"\0\xff" * 100)
            assert (done.exit_code, done.stdout, done.stderr) == (2, b"\0\xff" * 100, b"\xff\0\xff\0")
            assert box.backend == here.url
            assert box.guarantees[0] == f"on {here.url}, by memory"
    assert here.boxes.open == 0


async def test_errors_arrive_as_what_they_are() -> None:
    async with scene() as here:
        async with box_of(here) as box:
            inner = here.boxes.made[0]
            inner.fails = {
                "action": ActionFailed("no such thing"), "failed": SandboxFailed("broken", "mend it"),
                "policy": PolicyNotEnforceable("memory", "cannot", "hint", ("docker",)),
            }  # fmt: skip
            with pytest.raises(ActionFailed, match="no such thing"):
                await box.run("action")
            with pytest.raises(SandboxFailed, match="broken") as failed:
                await box.run("failed")
            assert failed.value.hint == "mend it"
            with pytest.raises(PolicyNotEnforceable) as refused:
                await box.run("policy")
            assert (refused.value.rule, refused.value.backends) == ("memory", ("docker",))
            with pytest.raises(ActionFailed, match="surrogate"):
                await box.run("echo \ud800")
            assert (await box.run("ls")).stdout == b"did ls"
            inner.fails["died"] = SandboxDied("it is gone")
            with pytest.raises(SandboxDied, match="it is gone"):
                await box.run("died")
            with pytest.raises(SandboxDied, match="it is gone"):
                await box.run("ls")


async def test_a_connection_that_breaks_while_a_command_runs() -> None:
    async with scene() as here:
        async with box_of(here) as box, anyio.create_task_group() as group:
            found: list[bytes] = []

            async def slow() -> None:
                found.append((await box.run("slow")).stdout)

            group.start_soon(slow)
            await here.boxes.made[0].began.wait()
            for _ in range(3):
                connections = here.way.connections
                await here.way.cut()
                await until(lambda before=connections: here.way.connections > before)  # type: ignore[misc]
            here.boxes.made[0].go.set()
        assert found == [b"did slow"]
        assert here.boxes.made[0].ran == ["slow"]
        assert len(here.boxes.made) == 1


@pytest.mark.parametrize("up", [True, False])
async def test_a_connection_that_breaks_at_any_byte_does_everything_once(up: bool) -> None:
    async with scene() as here:
        async with box_of(here) as box:
            inner = here.boxes.made[0]
            for number, at in enumerate((*range(1, 40), 60, 90, 120, 150, 190, 240, 300)):
                if up:
                    here.way.cut_up = at
                else:
                    here.way.cut_down = at
                assert (await box.run(f"c{number}")).stdout == f"did c{number}".encode()
                assert inner.ran[-1] == f"c{number}"
                assert len(inner.ran) == number + 1
            here.way.cut_up = here.way.cut_down = None
        assert here.way.connections > 20
        assert len(here.boxes.made) == 1
    assert here.boxes.open == 0


async def test_what_a_command_writes_is_shown_as_it_comes() -> None:
    async with scene() as here, box_of(here) as box, anyio.create_task_group() as group:
        seen, inner = list[tuple[str, bytes]](), here.boxes.made[0]
        await box.run("talk 3")
        assert not inner.write("stdout", b"nobody")
        box.on_output = lambda stream, data: seen.append((stream, data))
        group.start_soon(box.run, "slow")
        await inner.began.wait()
        for piece in (b"one\n", b"two\n"):
            assert inner.write("stdout", piece)
            await until(lambda wanted=("stdout", piece): wanted in seen)  # type: ignore[misc]
            connections = here.way.connections
            await here.way.cut()
            await until(lambda before=connections: here.way.connections > before)  # type: ignore[misc]
        inner.write("stderr", b"three\n")
        inner.go.set()
    assert seen == [("stdout", b"one\n"), ("stdout", b"two\n"), ("stderr", b"three\n")]


async def test_it_is_shown_once_and_in_order_wherever_the_connection_breaks() -> None:
    async with scene() as here, box_of(here) as box:
        seen = list[bytes]()
        box.on_output = lambda _, data: seen.append(data)
        wanted = b"".join(b"%d " % number for number in range(40))
        for at in (*range(1, 60, 3), 90, 150, 240, 400, 700, 1100, 1900):
            seen.clear()
            here.way.cut_down = at
            assert (await box.run("talk 40")).stdout == b"did talk 40"
            assert b"".join(seen) == wanted
        assert here.way.connections > 15
        assert len(here.boxes.made[0].ran) == 27


async def test_of_a_flood_the_last_is_kept_to_be_shown_and_what_is_not_is_counted() -> None:
    async with scene() as here, box_of(here) as box, anyio.create_task_group() as group:
        seen, inner = list[bytes](), here.boxes.made[0]
        box.on_output = lambda _, data: seen.append(data)
        group.start_soon(box.run, "slow")
        await inner.began.wait()
        for number in range(1000):
            inner.write("stdout", b"%10d" % number * 1000)
        inner.go.set()
    note, whole = seen[0], b"".join(seen[1:])
    assert 4_000_000 < len(whole) <= 4 << 20
    assert note == b"\n[... %d bytes came too fast ...]\n" % (10_000_000 - len(whole))
    assert whole.endswith(b"998" + b"       999" * 1000)
    assert max(map(len, seen)) <= 64 << 10


@pytest.mark.parametrize("breaks", [False, True])
async def test_all_of_a_long_output_is_shown_to_who_keeps_up(breaks: bool) -> None:
    """Far more than is kept; also when the connection breaks now and then."""
    async with scene() as here, box_of(here) as box, anyio.create_task_group() as group:
        seen, inner = list[bytes](), here.boxes.made[0]
        box.on_output = lambda _, data: seen.append(data)
        group.start_soon(box.run, "slow")
        await inner.began.wait()
        for number in range(12):
            inner.write("stdout", b"%10d" % number * 100_000)
            if breaks and number % 4 == 3:
                await here.way.cut()
            await until(lambda so_far=number + 1: sum(map(len, seen)) == so_far * 1_000_000)  # type: ignore[misc]
        inner.go.set()
    assert b"".join(seen) == b"".join(b"%10d" % number * 100_000 for number in range(12))


async def test_a_command_is_cancelled_over_there_too() -> None:
    async with scene() as here:
        async with box_of(here) as box:
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    group.start_soon(box.run, "slow")
                    await here.boxes.made[0].began.wait()
                    group.cancel_scope.cancel()
            assert (await box.run("after")).stdout == b"did after"
            with anyio.CancelScope() as at_once:
                at_once.cancel()
                await box.run("never seen")
            assert (await box.run("more")).stdout == b"did more"
        assert [command for command in here.boxes.made[0].ran if command != "never seen"] == ["slow", "after", "more"]


async def test_cancelling_over_a_broken_connection() -> None:
    async with scene() as here:
        async with box_of(here) as box:
            async with anyio.create_task_group() as group:
                group.start_soon(box.run, "slow")
                await here.boxes.made[0].began.wait()
                await here.way.cut()
                group.cancel_scope.cancel()
            assert (await box.run("after")).stdout == b"did after"


async def test_a_server_that_stays_away_is_the_death_of_the_sandbox() -> None:
    async with scene() as here:
        async with box_of(here, patience_s=0.2) as box:
            here.way.to = replace(here.way.to, port=1)
            await here.way.cut()
            with pytest.raises(SandboxDied, match="is lost"):
                await box.run("ls")
            with pytest.raises(SandboxDied):
                await box.run("ls")


async def test_a_server_that_does_not_take_the_token_any_more_is_one_that_is_lost() -> None:
    async with scene() as here, box_of(here) as box:
        here.tokens = [b"quite another token, since this morning"]
        await here.way.cut()
        with pytest.raises(SandboxDied, match="takes the token no more"):
            await box.run("ls")


async def test_cancelling_with_a_server_that_is_gone_is_cancelling() -> None:
    async with scene() as here, box_of(here, patience_s=0.1) as box:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(box.run, "slow")
                await here.boxes.made[0].began.wait()
                here.way.to = replace(here.way.to, port=1)
                await here.way.cut()
                scope.cancel()
        assert scope.cancelled_caught
        with pytest.raises(SandboxDied):
            await box.run("ls")


async def test_what_is_too_large_is_the_bots_to_mend() -> None:
    async with scene() as here, box_of(here) as box:
        with pytest.raises(ActionFailed, match="at most 64 MiB"):
            await box.exec(["cat"], bytes(68 << 20))
        assert (await box.run("ls")).stdout == b"did ls"


async def test_after_a_restart_of_the_server_a_new_sandbox_goes_on_and_that_is_said() -> None:
    async with scene() as here, scene() as other, box_of(here) as box:
        assert (await box.run("before")).shell_event is None
        here.way.to = other.address
        await here.way.cut()
        assert (await box.run("after")).shell_event == "shell_restarted"
        assert (await box.run("more")).shell_event is None
        assert (here.boxes.made[0].ran, other.boxes.made[0].ran) == (["before"], ["after", "more"])
        assert box.backend == here.url
    assert other.boxes.open == 0


async def test_what_was_in_flight_at_a_restart_is_not_done_again() -> None:
    async with scene() as here, scene() as other, box_of(here) as box:
        async with anyio.create_task_group() as group:

            async def lost() -> None:
                with pytest.raises(ActionFailed, match=r"started anew.*may have been done"):
                    await box.run("slow")

            group.start_soon(lost)
            await here.boxes.made[0].began.wait()
            here.way.to = other.address
            await here.way.cut()
        assert other.boxes.made[0].ran == []
        assert (await box.run("after")).shell_event == "shell_restarted"


async def test_a_restart_is_the_death_of_a_sandbox_for_who_wants_it_so() -> None:
    async with scene() as here, scene() as other, box_of(here, restarts=False) as box:
        here.way.to = other.address
        await here.way.cut()
        with pytest.raises(SandboxDied, match="started anew"):
            await box.run("ls")
        assert not other.boxes.made


async def test_a_restart_with_another_policy_is_the_death_of_a_sandbox_by_name(tmp_path: object) -> None:
    policy = Policy(network=Network(mode="open"))
    async with scene(Allowed(network=Network(mode="open"))) as here, scene() as other:
        async with box_of(here, policy=policy) as box:
            here.way.to = other.address
            await here.way.cut()
            with pytest.raises(SandboxDied, match="does not allow this network"):
                await box.run("ls")


async def test_a_client_that_does_not_come_back_is_not_waited_for_for_ever() -> None:
    async with scene(keep_s=0.2) as here:
        async with box_of(here, patience_s=0.0) as box:
            await box.run("ls")
            here.way.to = replace(here.way.to, port=1)
            await here.way.cut()
            with anyio.fail_after(20):
                await here.boxes.none_open.wait()
        assert not here.server.all


async def test_one_that_says_nothing_and_is_there_keeps_its_sandbox() -> None:
    """Its open connection says so: far longer than the time of one that is not there."""
    async with scene(keep_s=0.05) as here, box_of(here) as box:
        await anyio.sleep(0.5)
        assert (await box.run("ls")).stdout == b"did ls"
        assert here.boxes.made[0].ran == ["ls"]


@pytest.mark.parametrize(
    "url", ["nowhere", "ftp://h", "https://", "https://u:p@h", "https://h/path", "http://192.0.2.7:8711", "http://h"]
)
def test_what_is_no_address_or_would_show_the_token(url: str) -> None:
    with pytest.raises(UsageError):
        HttpSandbox(Policy(), url, TOKEN)


async def test_what_the_network_was_asked_arrives() -> None:
    async with scene() as here:
        box = box_of(here)
        events: list[NetworkRequest] = []
        box.on_network = events.append
        asked = NetworkRequest(at=1.0, host="a.test", port=443, method="GET", verdict="refused", reason="no")
        async with box:
            heard = here.boxes.made[0].on_network
            assert heard is not None
            heard(asked)
            await box.run("ls")
            assert events == [asked]
            heard(asked)
        assert events == [asked, asked]


async def test_only_what_is_allowed_is_given(tmp_path: object) -> None:
    folder = str(tmp_path)
    allowed = Allowed(roots=(Root(path=folder, mode="ro"),), network=Network(mode="allow", hosts=("a.test",)))
    async with scene(allowed) as here:
        for policy in (
            Policy(folders=(FolderRule(host="/etc", mode="ro"),)),
            Policy(folders=(FolderRule(host=folder, mode="rw"),)),
            Policy(folders=(FolderRule(host=f"{folder}/../..", mode="ro"),)),
            Policy(copies=(CopyRule(host="/etc/shadow", inside="/x"),)),
            Policy(lent=(FolderRule(host="/root", mode="ro"),)),
            Policy(system=("/root",)),
            Policy(network=Network(mode="open")),
            Policy(network=Network(mode="allow", hosts=("b.test",))),
            Policy(rootfs="/"),
        ):
            with pytest.raises(UsageError):
                async with box_of(here, policy=policy):
                    pass
        assert not here.boxes.made
        fine = Policy(folders=(FolderRule(host=folder, mode="ro"),), network=allowed.network)
        async with box_of(here, policy=fine):
            assert here.boxes.policies == [fine]


async def test_an_open_network_is_none_of_the_serving_machines_own() -> None:
    async with scene(Allowed(network=Network(mode="open"))) as here:
        for host in ("localhost:5432", "10.0.0.0/8", "db.internal", "[fd00::1]:80"):
            with pytest.raises(UsageError, match="does not allow this network"):
                async with box_of(here, policy=Policy(network=Network(mode="allow", hosts=(host,)))):
                    pass
        fine = Policy(network=Network(mode="allow", hosts=("pypi.org",)))
        async with box_of(here, policy=fine):
            assert here.boxes.policies == [fine]


async def test_links_out_of_what_is_allowed_are_seen_through(tmp_path: object) -> None:
    folder = anyio.Path(str(tmp_path)) / "given"
    await folder.mkdir()
    await (folder / "out").symlink_to("/etc")
    async with scene(Allowed(roots=(Root(path=str(folder), mode="rw"),))) as here:
        with pytest.raises(UsageError, match="does not allow"):
            async with box_of(here, policy=Policy(folders=(FolderRule(host=f"{folder}/out", mode="ro"),))):
                pass


async def test_leaving_at_any_moment_leaves_no_sandbox() -> None:
    async with scene() as here:
        for delay_s in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05):
            with anyio.move_on_after(delay_s):
                async with box_of(here) as box:
                    await box.run("slow")
            await until(lambda: here.boxes.open == 0)
        await until(lambda: not here.server.all)
