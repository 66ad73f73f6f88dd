"""Which outcomes are the same: real outputs of real commands."""

import pytest

from stockade.core.actions import Chunk, CommandOutput, Failed, Observation, Shell, Step, ToolResult
from stockade.loop import stuck
from stockade.loop.outcomes import key
from stockade.loop.state import Done, RunState


def command(output: str, exit_code: int = 1, *, stderr: str = "", **rest: object) -> CommandOutput:
    chunks = [Chunk.of("stdout", output.encode())] if output else []
    chunks += [Chunk.of("stderr", stderr.encode())] if stderr else []
    return CommandOutput(exit_code=exit_code, chunks=tuple(chunks), **rest)


def same(one: Observation, other: Observation, said: str = "./try.sh") -> bool:
    action = Shell(command=said)
    return key(action, one) == key(action, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Sun Nov 22 08:47:10 UTC 2026\nno", "Sun Nov 22 08:47:12 UTC 2026\nno"),
        ("Sun 22 Nov 2026 09:59:59 AM CET", "Sun 22 Nov 2026 10:00:03 AM CET"),
        ("2026-11-22T08:47:10.123456Z error", "2026-11-22T08:48:11.000001Z error"),
        ("2026-11-22 08:47:10,123 ERROR x", "2026-11-22 08:47:19,999 ERROR x"),
        ("[22/Nov/2026:08:47:10 +0000] 500", "[22/Nov/2026:08:47:11 +0000] 500"),
        ("1763800030 no", "1763800039 no"),
        ("(7) Failed to connect to x port 80 after 0 ms", "(7) Failed to connect to x port 80 after 3 ms"),
        ("1 failed, 2 passed in 0.12s", "1 failed, 2 passed in 0.31s"),
        ("real\t0m0.004s\nuser 0m0.001s", "real\t0m0.011s\nuser 0m0.003s"),
        ("--- FAIL: TestX (0.03s)\nFAIL pkg 0.241s", "--- FAIL: TestX (0.00s)\nFAIL pkg 0.198s"),
        ("<function f at 0x7f3a1c2d4e50>", "<function f at 0x7f3aaaaa0010>"),
        ("mktemp /tmp/tmp.Ab3dEf9xYz: full", "mktemp /tmp/tmp.QqRs77wert: full"),
        ("/tmp/ccXyZ12.o: undefined reference to `f'", "/tmp/ccAbC9q.o: undefined reference to `f'"),
        ("No such file: '/tmp/tmpab12cd_8/x'", "No such file: '/tmp/tmpzz98_qq1/x'"),
        ("bash: line 1:  4711 Killed    ./x", "bash: line 1:  4899 Killed    ./x"),
        ("bash: line 1: 102 Segmentation fault", "bash: line 1: 117 Segmentation fault"),
        ("[1] 4711\nno", "[1] 4720\nno"),
        ("lock held by pid 88", "lock held by pid 91"),
        ("==231== Invalid read", "==240== Invalid read"),
        ("request 3f2504e0-4f89-11d3-9a0c-0305e82c3301 failed", "request 9b2504e0-4f89-11d3-9a0c-0305e82c33ff failed"),
    ],
)  # fmt: skip
def test_a_failure_is_the_same_but_for_what_differs_each_time(one: str, other: str) -> None:
    assert same(command(one), command(other))
    assert same(command("", stderr=one), command("", stderr=other))
    assert not same(command(one, 0), command(other, 0))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 failed, 9 passed", "2 failed, 10 passed"),
        ("x.py:12: error: bad", "x.py:13: error: bad"),
        ("Found 12 errors", "Found 9 errors"),
        ("undefined name 'a'", "undefined name 'b'"),
        ("loss 0.81", "loss 0.79"),
        ("cat: part1: No such file", "cat: part2: No such file"),
        ("HTTP 404", "HTTP 500"),
        ("f.c:12:10: error", "f.c:12:11: error"),
    ],
)
def test_small_numbers_and_words_are_news(one: str, other: str) -> None:
    assert not same(command(one), command(other))


def test_other_ends_are_news() -> None:
    assert not same(command("no"), command("no", 2))
    assert not same(command("no"), command("no", timed_out=True))
    assert not same(command("no", cwd="/a"), command("no", cwd="/b"))
    assert not same(command("no"), command("", stderr="no"))


def test_what_the_action_named_counts() -> None:
    one, other = command("cat: /tmp/a1: No such file"), command("cat: /tmp/a2: No such file")
    assert same(one, other)
    assert not same(one, other, "cat /tmp/a1 /tmp/a2")


def test_the_order_in_which_streams_arrived_is_no_news() -> None:
    out, err = Chunk.of("stdout", b"a\n"), Chunk.of("stderr", b"b\n")
    assert same(CommandOutput(exit_code=1, chunks=(out, err)), CommandOutput(exit_code=1, chunks=(err, out)))


def test_other_failures_too() -> None:
    assert same(Failed(message="timed out after 3.1 s"), Failed(message="timed out after 3.4 s"))
    assert same(ToolResult(status="error", text="at 10:00:01"), ToolResult(status="error", text="at 10:00:02"))
    assert not same(ToolResult(status="data", text="at 10:00:01"), ToolResult(status="data", text="at 10:00:02"))


def state_of(observations: list[CommandOutput], said: str) -> RunState:
    return RunState(done=[Done(n, Step(action=Shell(command=said)), seen) for n, seen in enumerate(observations)])


def test_a_command_that_fails_with_the_time_of_day_is_a_loop() -> None:
    """SmolLM2 went on for ever with one."""
    failing = [command(f"Sun Nov 22 08:4{n}:10 UTC 2026\n", 127, stderr="bash: nope: not found\n") for n in range(6)]
    state = state_of(failing, "date; nope")
    assert stuck.nudge_text(state)
    assert stuck.is_loop(state) == "the same action gave the same result 6 times"


def test_a_log_that_grows_is_no_loop() -> None:
    watching = [command(f"08:4{n}:10 line {n}\n{n * 1000} /var/log/x\n", 0) for n in range(9)]
    state = state_of(watching, "tail -n 1 /var/log/x; wc -l /var/log/x")
    assert stuck.nudge_text(state) is None
    assert stuck.is_loop(state) is None
