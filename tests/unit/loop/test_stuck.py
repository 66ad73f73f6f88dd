"""Every kind of going in circles is noticed within three turns of its beginning, and ends by name."""

from collections.abc import Sequence

import pytest

from stockade.core.actions import Chunk, CommandOutput, Failed, FileWritten, Observation, Shell, Step, WriteFile
from stockade.core.budget import Budget
from stockade.core.events import Nudged
from stockade.loop import stuck
from stockade.loop.state import Done, RunState
from stockade.testing import MemorySandbox, say
from tests.unit.loop.helpers import Bench, started

UNLIMITED = Budget(max_turns=0, timeout_s=0)


def shell(command: str, output: str = "", exit_code: int = 0, turn: int = 1) -> Done:
    chunks = (Chunk.of("stdout", output.encode()),) if output else ()
    return Done(turn, Step(action=Shell(command=command)), CommandOutput(exit_code=exit_code, chunks=chunks))


def state_of(done: Sequence[Done]) -> RunState:
    return RunState(turns=len(done), done=list(done))


def noticed_after(done: Sequence[Done]) -> int | None:
    """The number of actions after which something is said."""
    for count in range(1, len(done) + 1):
        if stuck.nudge_text(state_of(done[:count])):
            return count
    return None


def stopped_after(done: Sequence[Done]) -> int | None:
    for count in range(1, len(done) + 1):
        if stuck.is_loop(state_of(done[:count])):
            return count
    return None


def rotation(period: int) -> list[Done]:
    return [shell(f"cat {n % period}", f"file {n % period}") for n in range(40)]


@pytest.mark.parametrize(
    ("done", "begins", "noticed", "stopped"),
    [
        (rotation(1), 2, 2, 6),
        (rotation(2), 3, 4, 8),
        (rotation(3), 4, 6, 10),
        ([shell(f"vim{n}", "not found", 127) for n in range(40)], 2, 3, 7),
        ([shell(f"# now step {n} will be done") for n in range(40)], 1, 2, 6),
        ([shell("") for _ in range(40)], 1, 2, 6),
        ([shell("ls", "alpha.txt beta.txt"), *[shell(f"echo 'alpha.txt {b}'", f"alpha.txt {b}") for b in
          ["beta.txt"] * 9]], 2, 3, 7),
        ([Done(1, Step(action=WriteFile(path=f"/{n}", content="x")), Failed(message="Permission denied"))
          for n in range(40)], 2, 3, 7),
    ],
    ids=["same", "two", "three", "same outcome", "comments", "nothing", "echo", "failed"],
)  # fmt: skip
def test_noticed_and_stopped(done: list[Done], begins: int, noticed: int, stopped: int) -> None:
    assert noticed_after(done) == noticed
    assert noticed - begins <= 2
    assert stopped_after(done) == stopped


def written(n: int) -> Observation:
    return FileWritten(path="a.py", size=n)


@pytest.mark.parametrize(
    "done",
    [
        [shell("date", str(n)) for n in range(40)],
        [shell(f"mkdir {n}") for n in range(40)],
        [step for n in range(20) for step in (
            Done(1, Step(action=WriteFile(path="a.py", content=str(n))), written(n)), shell("pytest", "1 failed", 1))],
        [shell(f"echo line {n} > f{n}") for n in range(40)],
        [shell("cat plan", "make build and then test"), shell("make build"), shell("make test", "ok")],
    ],
    ids=["news", "silent successes", "edit and test", "writing by echo", "doing what was read"],
)  # fmt: skip
def test_work_is_no_loop(done: list[Done]) -> None:
    assert noticed_after(done) is None
    assert stuck.extra_temperature(state_of(done)) == 0
    assert stuck.offered(state_of(done), ("shell", "finish")) == ("shell", "finish")


def test_looking_again_and_again_with_something_in_between_is_noticed() -> None:
    """What Qwen did with a finished archive: ls twice, unpack it, ls twice, remove it, make it, ls twice."""
    look, news = shell("ls a.tar", "a.tar"), iter(range(9))
    done = [step for _ in range(3) for step in (look, look, shell(f"touch {next(news)}"))]
    assert stuck.worst(done[:8]).count >= stuck.WITHHOLD_AFTER
    assert stuck.offered(state_of(done[:8]), ("shell", "finish")) == ("finish",)


def test_only_finish_is_left_for_those_who_repeat_themselves_but_not_for_those_who_try() -> None:
    same = state_of([shell("ls", "a")] * 3)
    trying = state_of([shell(f"vim{n}", "not found", 127) for n in range(6)])
    assert stuck.offered(same, ("shell", "finish")) == ("finish",)
    assert stuck.offered(same, ("shell",)) == ("shell",)
    assert stuck.offered(trying, ("shell", "finish")) == ("shell", "finish")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answers",
    [
        [say("shell", command="ls")],
        [say("shell", command="a"), say("shell", command="b")],
        [say("shell", command="a"), say("shell", command="b"), say("shell", command="c")],
        [say("shell", command="# I will do it")],
        [say("shell", command="")],
        [""],
        ["I am done with everything."],
        ['{"action": {}}', "", "{"],
    ],
)
async def test_no_run_without_limits_spins_for_ever(answers: list[str]) -> None:
    bench = Bench(answers * 30, MemorySandbox(dict.fromkeys("abc", "no news")))
    finished = await bench.run(started(budget=UNLIMITED))
    assert finished.status == "stopped"
    assert finished.reason in ("loop", "unreadable")
    assert finished.turns <= 12


def test_a_bot_that_was_shown_its_changes_may_mend_them() -> None:
    """The 1.5B saw in its review that the version should stand there without quotes, and could only finish."""
    state = state_of([shell("jq .version package.json > v", "") for _ in range(4)])
    assert stuck.offered(state, ("shell", "finish")) == ("finish",)
    state.nudges.append(Nudged(at=1.0, turn=state.turns, why="review", text="Content of v: '\"2.14.3\"'"))
    assert stuck.offered(state, ("shell", "finish")) == ("shell", "finish")
    assert stuck.nudge_text(state) is None
    state.turns += 1
    assert stuck.offered(state, ("shell", "finish")) == ("finish",)


def _failing_with(between: Sequence[Done]) -> list[Done]:
    """The same failing command ten times, with `between` after each of them in turn."""
    fails = shell("git revert '<COMMIT>'", "fatal: bad revision '<COMMIT>'", 128)
    return [step for n in range(10) for step in (fails, between[n % len(between)])]


def test_what_fails_the_same_way_ends_the_run_by_name_whatever_was_done_in_between() -> None:
    looking = [shell(f"ls {n}", f"file {n}") for n in range(9)] + [shell("cat x", "no such file", 1)]
    done = _failing_with(looking)
    assert stopped_after(done) == 11
    assert stuck.is_loop(state_of(done[:11])) == "the same action failed in the same way 6 times"


def test_a_run_that_was_made_to_forget_and_began_anew_is_ended_for_the_same_failure() -> None:
    state = state_of(_failing_with([shell(f"ls {n}", f"file {n}") for n in range(10)])[:11])
    state.anew_at = state.forgot_at = 10
    assert stuck.is_loop(state) == "the same action failed in the same way 6 times"


@pytest.mark.parametrize(
    "changes",
    [
        [shell(f"sed -i s/{n}/b/ x.py") for n in range(10)],
        [
            Done(1, Step(action=WriteFile(path="x.py", content=f"{n}")), FileWritten(path="x.py", size=1))
            for n in range(10)
        ],
    ],
    ids=["in silence", "a file"],
)
def test_a_check_that_fails_again_after_each_edit_is_work(changes: list[Done]) -> None:
    assert stopped_after(_failing_with(changes)) is None
