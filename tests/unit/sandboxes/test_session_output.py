"""Output is exact, in bounded memory, and commands find nothing on stdin."""

import io
import tracemalloc
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stockade.core.errors import ActionFailed
from stockade_sandbox.port import MAX_COMMAND_BYTES
from tests.support.scale import scaled
from tests.unit.sandboxes.session_support import LARGE, shell


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("command", "stdout", "stderr", "status"),
    [
        ("printf 'no newline'", b"no newline", b"", 0),
        ("printf 'blanks  \\n \\n\\n'", b"blanks  \n \n\n", b"", 0),
        ("printf 'a\\0b\\xff\\xfe'", b"a\0b\xff\xfe", b"", 0),
        ("echo out; echo err >&2; (exit 9)", b"out\n", b"err\n", 9),
        ("", b"", b"", 0),
        ("# only a comment", b"", b"", 0),
        (" \n\t\n # and blanks\n", b"", b"", 0),
        ("cat; echo $?", b"0\n", b"", 0),
        ("read x; echo $?", b"1\n", b"", 0),
        ("head -1; echo end", b"end\n", b"", 0),
        ("echo __COMMAND_COMPLETE__ SIOUNIQUEEOF; printf '\\nD 1 0 \\nN\\n'", None, b"", 0),
        ("echo done >/dev/stdout; echo warn >/dev/stderr", b"done\n", b"warn\n", 0),
        ("cat <<EOF\na\nb\nEOF", b"a\nb\n", b"", 0),
        ("echo äöü€😀", "äöü€😀\n".encode(), b"", 0),
        ("-x", b"", b"-x: command not found\n", 127),
        ("tty", b"not a tty\n", b"", 1),
    ],
)
async def test_exact_output(command: str, stdout: bytes | None, stderr: bytes, status: int) -> None:
    async with shell(streams="separate") as session:
        out = await session.run(command)
    assert out.exit_code == status
    assert stdout is None or out.stdout == stdout
    assert out.stderr.endswith(stderr)
    assert bool(out.stderr) == bool(stderr)
    assert (out.shell_event, out.truncated_bytes) == (None, 0)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "command",
    [
        "echo 'open",
        'echo "open',
        "if true; then echo ran",
        "echo ran\n}",
        ")",
        "}; echo ran; {",
        "echo ran; done",
        "&&",
    ],
)
async def test_a_syntax_error_is_refused_before_anything_runs(command: str) -> None:
    async with shell(streams="separate") as session:
        await session.run("x=kept")
        out = await session.run(command)
        assert (out.exit_code, out.stdout, out.shell_event) == (2, b"", None)
        assert b"syntax error" in out.stderr or b"unexpected EOF" in out.stderr
        assert (await session.run("echo $? $x")).stdout == b"2 kept\n"


@pytest.mark.anyio
async def test_what_bash_learns_on_the_way_is_no_syntax_error() -> None:
    async with shell(streams="separate") as session:
        out = await session.run("shopt -s extglob\ncd /usr && ls -d !(bin|lib*) | head -1 | wc -l")
        assert (out.exit_code, out.stdout) == (0, b"1\n")
        heredoc = await session.run("cat <<EOF\nopen")
        assert (heredoc.exit_code, heredoc.stdout) == (0, b"open\n")


@pytest.mark.anyio
@pytest.mark.parametrize("command", ["echo out; echo err >&2; nosuch", "echo 'open", "vim x", "ulimit -f 1; yes > f"])
async def test_one_stream_tells_everything_as_stdout(command: str, tmp_path: Path) -> None:
    async with shell(cwd=str(tmp_path), file_bytes=1 << 20) as session:
        one = await session.run(command)
    async with shell(cwd=str(tmp_path), file_bytes=1 << 20, streams="separate") as session:
        two = await session.run(command)
    assert (one.stderr, one.exit_code) == (b"", two.exit_code)
    assert sorted(one.stdout.splitlines()) == sorted(two.output.splitlines())
    assert two.stderr


@pytest.mark.anyio
async def test_a_character_is_whole_however_its_bytes_are_written() -> None:
    """In one stream the halves of a character are one, from whichever descriptor they come."""
    async with shell() as session:
        out = await session.run("printf '\\xc3'; printf '\\xa9' >&2; echo")
    assert [chunk.text for chunk in out.chunks] == ["é\n"]


@pytest.mark.anyio
async def test_five_megabytes_are_exact() -> None:
    async with shell(output_bytes=LARGE, streams="separate") as session:
        out = await session.run("head -c 5000000 /dev/zero | tr '\\0' x; echo e >&2")
    assert out.stdout == b"x" * 5_000_000
    assert (out.stderr, out.truncated_bytes) == (b"e\n", 0)


@pytest.mark.anyio
async def test_a_flood_is_clipped_with_an_exact_count_in_bounded_memory() -> None:
    total = 200_000_000
    async with shell(output_bytes=16384) as session:
        tracemalloc.start()
        out = await session.run(f"echo head; head -c {total} /dev/zero; echo tail")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert out.stdout.startswith(b"head\n")
    assert out.stdout.endswith(b"\0tail\n")
    assert len(out.output) == 16384
    assert out.truncated_bytes == total + 10 - 16384
    assert peak < 10_000_000


@pytest.mark.anyio
async def test_the_whole_output_can_be_kept_elsewhere() -> None:
    whole = io.BytesIO()
    async with shell(output_bytes=256, spill_bytes=50_000) as session:
        out = await session.run("seq 100000", spill=whole)
    assert out.truncated_bytes > 0
    assert whole.getvalue() == "".join(f"{i}\n" for i in range(1, 100001)).encode()[:50_000]


@pytest.mark.anyio
async def test_long_commands() -> None:
    async with shell(output_bytes=LARGE) as session:
        word = "x" * 100_000
        assert (await session.run(f"echo {word}")).stdout == word.encode() + b"\n"
        body = "y" * 79 + "\n"
        document = body * ((MAX_COMMAND_BYTES - 100) // len(body))
        assert (await session.run(f"cat <<'EOF'\n{document}EOF")).stdout == document.encode()


@pytest.mark.anyio
@pytest.mark.parametrize("command", ["echo a\0b", "x" * (MAX_COMMAND_BYTES + 1), "echo \ud800"])
async def test_what_is_no_command(command: str) -> None:
    async with shell() as session:
        with pytest.raises(ActionFailed):
            await session.run(command)
        assert (await session.run("echo on")).stdout == b"on\n"


@pytest.mark.anyio
async def test_exec_keeps_the_first_bytes() -> None:
    async with shell() as session:
        result = await session.exec(["seq", "100000"], max_output_bytes=10)
        large = await session.exec(["wc", "-c"], stdin=b"z" * 3_000_000)
    assert (result.stdout, result.truncated_bytes) == (b"1\n2\n3\n4\n5\n", 588895 - 10)
    assert large.stdout == b"3000000\n"


@pytest.mark.anyio
async def test_a_background_job_goes_on_and_delays_nothing(tmp_path: Path) -> None:
    async with shell(output_bytes=LARGE, cwd=str(tmp_path), streams="separate") as session:
        started = await session.run("mkfifo go said; { cat go; echo late; echo > said; yes; } & echo started")
        assert started.stdout == b"started\n"
        told = await session.run("echo now > go")
        out = await session.run("cat said; echo mine >&2", timeout_s=10)
        assert (out.exit_code, out.stderr) == (0, b"mine\n")
        assert (told.stdout + out.stdout).startswith(b"now\nlate\n")
        assert (await session.run("kill %1")).exit_code == 0


@settings(max_examples=scaled(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=6))
def test_any_bytes_come_back(pieces: list[bytes]) -> None:
    async def main() -> None:
        async with shell(output_bytes=LARGE) as session:
            for data in pieces:
                out = await session.run("printf '" + "".join(f"\\x{byte:02x}" for byte in data) + "'")
                assert (out.stdout, out.stderr) == (data, b"")

    anyio.run(main)
