"""What every Sandbox must do. A test module subclasses this and gives `bench` as a fixture.

Nothing here knows a backend: what differs (making one, killing it from outside, what it leaves on the host) is `Bench`.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from stockade_sandbox.backends.rootfs import OFFLINE
from stockade_sandbox.conformance.bench import Bench, output_of
from stockade_sandbox.conformance.network import NetworkConformance
from stockade_sandbox.errors import SandboxDied, UsageError
from stockade_sandbox.policy import CopyRule, FolderMode, FolderRule, Limits, Policy
from stockade_sandbox.port import ShowsOutput

MIB = 1024**2


def policy_of(folder: Path, mode: FolderMode, limits: Limits | None = None) -> Policy:
    return Policy(folders=(FolderRule(host=str(folder), mode=mode),), limits=limits or Limits(command_timeout_s=30))


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, modification time and content of everything below."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def names_below(folder: str) -> set[str]:
    return {path.name for path in Path(folder).rglob("*") if path.is_file()}


class ShellConformance:
    """The persistent shell, as far as every backend must carry it."""

    pytestmark = pytest.mark.anyio

    async def test_names_itself(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert box.backend
            assert box.guarantees
            assert box.layers == ()

    async def test_state_persists(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            await box.run("cd /tmp; A=1; f() { echo fun; }; export B=2; umask 077")
            assert await output_of(box, "pwd; echo $A; f; sh -c 'echo $B'; umask") == "/tmp\n1\nfun\n2\n0077\n"

    async def test_output_is_exact(self, bench: Bench) -> None:
        command = "printf 'a\\n\\n b'; printf '\\377\\000x' >&2; exit 7"
        async with bench.make(Policy(streams="separate")) as box:
            result = await box.run(command)
            assert (result.stdout, result.stderr, result.exit_code) == (b"a\n\n b", b"\xff\x00x", 7)
            assert await output_of(box, "echo still here") == "still here\n"
        async with bench.make(Policy()) as box:
            result = await box.run(command)
            assert (result.stdout, result.stderr, result.exit_code) == (b"a\n\n b\xff\x00x", b"", 7)

    async def test_one_stream_is_in_the_order_of_writing(self, bench: Bench) -> None:
        lines = b"".join(b"out %d\nerr %d\n" % (i, i) for i in range(1000))
        async with bench.make(Policy(limits=Limits(output_bytes=len(lines)))) as box:
            for _ in range(20):
                result = await box.run("for i in {0..999}; do echo out $i; echo err $i >&2; done")
                assert (result.output, result.truncated_bytes) == (lines, 0)
            mixed = "(echo 1 >&2; echo 2) | tee /dev/stderr; { echo 3 >&2; echo 4; } 2>&1; (echo 5 >&2 & wait); echo 6"
            assert await output_of(box, mixed) == "1\n2\n2\n3\n4\n5\n6\n"

    async def test_what_a_command_writes_is_shown_while_it_runs_if_it_shows_it(self, bench: Bench) -> None:
        seen = list[bytes]()
        async with bench.make(Policy()) as box:
            shows = isinstance(box, ShowsOutput)
            if isinstance(box, ShowsOutput):
                box.on_output = lambda _, data: seen.append(data)
            output = await box.run("echo one; sleep 0.3; printf 'two\\xff'; (echo three >&2)")
        assert len(seen) > 1 or not shows
        assert b"".join(seen) == (output.stdout if shows else b"")

    async def test_a_time_out_ends_the_whole_tree_and_keeps_the_state(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            await box.run("A=kept")
            result = await box.run("setsid sleep 987 & (trap '' TERM; sleep 986); sleep 985", 0.5)
            assert (result.timed_out, result.exit_code) == (True, 124)
            listing = await output_of(box, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo; echo $A")
            assert "sleep 98" not in listing.replace("cat /proc", "")
            assert listing.endswith("kept\n")

    async def test_standard_input_is_empty(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert await output_of(box, "cat; read x; echo $?", 10) == "1\n"

    async def test_a_flood_is_clipped_with_an_exact_count(self, bench: Bench) -> None:
        async with bench.make(Policy(limits=Limits(output_bytes=1000))) as box:
            result = await box.run("head -c 3000000 /dev/zero | tr '\\0' x", 60)
            assert len(result.output) + result.truncated_bytes == 3_000_000
            assert len(result.output) <= 1000

    async def test_cancelling_a_command_keeps_the_sandbox(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            with anyio.move_on_after(0.3) as scope:
                await box.run("sleep 100")
            assert scope.cancelled_caught
            assert await output_of(box, "echo here") == "here\n"

    async def test_process_one_cannot_be_killed_from_inside(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            await box.run("kill -9 1; kill -9 -1; kill -9 $PPID", 20)
            assert await output_of(box, "echo here") == "here\n"


class ExecConformance:
    """Programs beside the shell."""

    pytestmark = pytest.mark.anyio

    async def test_input_output_and_status(self, bench: Bench) -> None:
        data = bytes(range(256)) * 4000
        async with bench.make(Policy()) as box:
            result = await box.exec(["cat"], stdin=data, max_output_bytes=2 * len(data))
            assert (result.stdout, result.exit_code) == (data, 0)
            result = await box.exec(["sh", "-c", "echo no >&2; exit 3"])
            assert (result.stderr, result.exit_code, result.stdout) == (b"no\n", 3, b"")

    async def test_runs_where_the_shell_is(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            await box.run("mkdir -p /tmp/here && cd /tmp/here")
            assert (await box.exec(["pwd"])).stdout == b"/tmp/here\n"

    async def test_time_out_and_clipping(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert (await box.exec(["sleep", "100"], timeout_s=0.3)).timed_out
            result = await box.exec(["head", "-c", "100000", "/dev/zero"], max_output_bytes=1000)
            assert len(result.stdout) + result.truncated_bytes == 100_000

    async def test_a_missing_program_is_a_status_not_a_death(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert (await box.exec(["/no/such/program"])).exit_code in (126, 127)
            assert await output_of(box, "echo here") == "here\n"


REACHING = """import os, socket
try:
    socket.socket(socket.AF_UNIX).connect("socket")
    print("connected")
except OSError:
    pass
try:
    print(os.read(os.open("pipe", os.O_RDONLY | os.O_NONBLOCK), 9))
except OSError:
    pass
"""
"""Prints what it reaches of a socket and a named pipe."""


@contextmanager
def reachable_at(folder: Path) -> Iterator[None]:
    """A listening socket and a named pipe with something in it, for all."""
    server, at = socket.socket(socket.AF_UNIX), os.open(folder, os.O_PATH)
    os.mkfifo(folder / "pipe")
    pipe = os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        server.bind(f"/proc/self/fd/{at}/socket")
        server.listen()
        for name in ("pipe", "socket"):
            (folder / name).chmod(0o666)
        os.write(pipe, b"secret")
        yield
    finally:
        server.close()
        os.close(pipe)
        os.close(at)


class FolderConformance:
    """What may be written, and where it goes."""

    pytestmark = pytest.mark.anyio

    async def test_read_only_is_read_only(self, bench: Bench) -> None:
        before = snapshot(bench.folder)
        async with bench.make(policy_of(bench.folder, "ro")) as box:
            assert await output_of(box, "pwd; cat a.txt") == "/workspace\nalpha\n"
            for command in ("echo x > a.txt", "rm a.txt", "touch new", "mkdir d", "chmod 777 a.txt", "mv sub gone"):
                assert (await box.run(command)).exit_code != 0, command
        assert snapshot(bench.folder) == before

    async def test_sockets_and_pipes_of_the_host_lead_nowhere(self, bench: Bench) -> None:
        with reachable_at(bench.folder):
            done = await anyio.run_process(["python3", "-c", REACHING], cwd=bench.folder)
            assert done.stdout == b"connected\nb'secret'\n"
        for name in ("pipe", "socket"):
            (bench.folder / name).unlink()
        with reachable_at(bench.folder):
            for mode in ("ro", "overlay"):
                async with bench.make(policy_of(bench.folder, mode)) as box:
                    reached = await box.exec(["python3", "-c", REACHING])
                    assert (reached.exit_code, reached.stdout.replace(b"b''\n", b"")) == (0, b"")

    async def test_overlay_leaves_the_host_as_it_was(self, bench: Bench) -> None:
        before = snapshot(bench.folder)
        async with bench.make(policy_of(bench.folder, "overlay")) as box:
            command = "echo more >> a.txt && rm sub/b.txt && mkdir d && echo n > d/new && mv private moved && ls -A"
            assert (await box.run(command)).stdout == b"a.txt\nd\nmoved\nsub\n"
            assert await output_of(box, "cat a.txt d/new moved; ls sub") == "alpha\nmore\nn\nsecret\n"
            (layer,) = box.layers
            assert layer.layer is not None
            assert {"a.txt", "new"} <= names_below(layer.layer)
        assert snapshot(bench.folder) == before

    async def test_rw_writes_through(self, bench: Bench) -> None:
        owner = bench.folder.stat()
        async with bench.make(policy_of(bench.folder, "rw")) as box:
            assert (await box.run("echo more >> a.txt && echo n > new && rm sub/b.txt && cat private")).exit_code == 0
        assert (bench.folder / "a.txt").read_text() == "alpha\nmore\n"
        assert not (bench.folder / "sub/b.txt").exists()
        new = (bench.folder / "new").stat()
        assert (new.st_uid, new.st_gid) == (owner.st_uid, owner.st_gid)

    async def test_several_folders_and_copies(self, bench: Bench, tmp_path: Path) -> None:
        extra = tmp_path / "extra.txt"
        extra.write_text("extra")
        policy = Policy(
            folders=(
                FolderRule(host=str(bench.folder), mode="overlay"),
                FolderRule(host=str(bench.folder / "sub"), mode="ro", inside="/data"),
            ),
            copies=(CopyRule(host=str(extra), inside="/in/extra.txt"), CopyRule(host=str(bench.folder), inside="/all")),
        )
        async with bench.make(policy) as box:
            assert await output_of(box, "cat /data/b.txt /in/extra.txt /all/a.txt") == "beta\nextraalpha\n"
            assert (await box.run("echo x >> /in/extra.txt && rm /all/a.txt && touch /all/new")).exit_code == 0
        assert extra.read_text() == "extra"
        assert (bench.folder / "a.txt").exists()

    @pytest.mark.parametrize("inside", ["/usr", "/etc/x", "/proc", "/", "/.stockade/x"])
    async def test_places_of_the_system_are_refused(self, bench: Bench, inside: str) -> None:
        policy = Policy(folders=(FolderRule(host=str(bench.folder), mode="ro", inside=inside),))
        with pytest.raises(UsageError):
            async with bench.make(policy):
                pass


class SealConformance:
    """What is not inside, and what is bounded."""

    pytestmark = pytest.mark.anyio

    async def test_environment_is_only_what_was_given(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOST_TOKEN", "t0ken")
        async with bench.make(Policy(environment={"GIVEN": "a b\n'\"$x"})) as box:
            names = {line.split("=")[0] for line in (await output_of(box, "env -0 | tr '\\n\\0' ' \\n'")).splitlines()}
            own = {"HOME", "LANG", "PATH", "TERM", "USER", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME"}
            assert names <= {"GIVEN", *own, *OFFLINE}
            assert await output_of(box, 'printf %s "$GIVEN"') == "a b\n'\"$x"
            assert "t0ken" not in await output_of(box, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")

    async def test_python_has_its_short_name(self, bench: Bench) -> None:
        """Debian's system has only python3, and models type python."""
        async with bench.make(Policy()) as box:
            assert await output_of(box, "python -c 'print(6 * 7)'; sh -c 'python -c 0' && echo found") == "42\nfound\n"
            assert await output_of(box, "readlink /.stockade/bin/python") == "/usr/bin/python3\n"
            assert (await box.run("ln -sf /bin/false /.stockade/bin/python")).exit_code != 0

    async def test_no_network(self, bench: Bench) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            socket.create_connection(("127.0.0.1", port)).close()
            async with bench.make(Policy()) as box:
                assert (await box.run(f"exec 3<>/dev/tcp/127.0.0.1/{port}")).exit_code != 0
                assert await output_of(box, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo\n"
                assert await output_of(box, "tail -n +2 /proc/net/route") == ""

    async def test_an_ordinary_user_without_rights(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert await output_of(box, "id -u") != "0\n"
            status = await output_of(box, "grep -E '^(CapEff|CapBnd)' /proc/self/status")
            assert status.split() == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16]
            said = (await box.run("setpriv --dump")).stdout  # gVisor holds it, and has no line for it in /proc
            assert b"no_new_privs: 1\n" in said

    async def test_a_fork_bomb_is_bounded(self, bench: Bench) -> None:
        async with bench.make(Policy(limits=Limits(processes=64))) as box:
            assert (await box.run("b() { b | b & }; b; sleep 100", 1)).timed_out
            assert await output_of(box, "echo here", 30) == "here\n"
            await box.run("kill -9 -1", 10)
            assert await output_of(box, "echo here", 30) == "here\n"

    async def test_a_memory_hog_is_bounded(self, bench: Bench) -> None:
        async with bench.make(Policy(limits=Limits(memory_bytes=256 * MIB))) as box:
            result = await box.run("head -c 600M /dev/zero | tail -c 500M | wc -c", 60)
            assert result.stdout.strip() != str(500 * MIB).encode()
            assert await output_of(box, "echo here", 30) == "here\n"

    async def test_a_file_is_bounded(self, bench: Bench) -> None:
        async with bench.make(policy_of(bench.folder, "overlay", Limits(file_bytes=4 * MIB))) as box:
            assert (await box.run("head -c 8M /dev/zero > big")).exit_code != 0
            assert int(await output_of(box, "stat -c %s big")) <= 4 * MIB
            ended = await box.run("truncate -s 1T sparse")
            assert ended.exit_code != 0
            assert b"limit of 4 MiB for one file" in ended.output or b"too large" in ended.output.lower()

    async def test_scratch_is_bounded_in_total(self, bench: Bench) -> None:
        async with bench.make(Policy(limits=Limits(disk_bytes=16 * MIB))) as box:
            places = "/tmp /dev/shm /var/tmp /home/agent"
            await box.run(f"for d in {places}; do head -c 10M /dev/zero > $d/x; done", 60)
            sizes = await output_of(box, f"for d in {places}; do stat -c %s $d/x; done")
            assert sum(int(size) for size in sizes.split()) <= 16 * MIB

    async def test_open_files_are_bounded(self, bench: Bench) -> None:
        async with bench.make(Policy(limits=Limits(open_files=100))) as box:
            assert await output_of(box, "ulimit -n; ulimit -Hn") == "100\n100\n"


class EndConformance:
    """Ends: wanted, unwanted, and what is left."""

    pytestmark = pytest.mark.anyio

    async def test_death_is_named_and_never_an_output(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            killer = threading.Timer(0.5, bench.kill, [box])
            killer.start()
            with pytest.raises(SandboxDied):
                await box.run("echo before; sleep 30")
            killer.join()
            with pytest.raises(SandboxDied):
                await box.run("echo after")

    async def test_leaving_leaves_nothing(self, bench: Bench) -> None:
        before = bench.traces()
        async with bench.make(policy_of(bench.folder, "overlay")) as box:
            await box.run("(setsid nohup sleep 1000 >/dev/null 2>&1 &) ; sleep 1000 &")
            assert bench.traces() - before
        assert not bench.traces() - before

    async def test_a_death_leaves_nothing(self, bench: Bench) -> None:
        before = bench.traces()
        async with bench.make(Policy()) as box:
            await box.run("sleep 1000 &")
            bench.kill(box)
        assert not bench.traces() - before

    async def test_cancelling_anywhere_leaves_nothing(self, bench: Bench) -> None:
        before = bench.traces()
        for delay_s in (0.0, 0.005, 0.02, 0.04, 0.2):
            with anyio.move_on_after(delay_s):
                async with bench.make(policy_of(bench.folder, "overlay")) as box:
                    await box.run("sleep 100")
            assert not bench.traces() - before

    async def test_two_at_once_do_not_see_each_other(self, bench: Bench) -> None:
        async with bench.make(Policy()) as one, bench.make(Policy()) as two:
            await one.run("echo mine > /tmp/x; sleep 654 &")
            listing = await output_of(two, "ls -A /tmp; cat /proc/[0-9]*/comm")
            assert "x\n" not in listing.splitlines()
            assert "sleep" not in listing


class SandboxConformance(
    ShellConformance, ExecConformance, FolderConformance, SealConformance, NetworkConformance, EndConformance
):
    """Every backend passes all of these."""


def fill(folder: Path, own: Callable[[Path], None] = lambda _: None) -> Path:
    """The host folder the suite expects; `own` is called on everything made."""
    made: Sequence[tuple[str, str, int]] = (("a.txt", "alpha\n", 0o644), ("sub/b.txt", "beta\n", 0o644))
    (folder / "sub").mkdir(parents=True)
    for name, text, mode in (*made, ("private", "secret\n", 0o600)):
        (folder / name).write_text(text)
        (folder / name).chmod(mode)
    for path in (folder, *folder.rglob("*")):
        own(path)
    return folder
