"""Who authorises what: AutoGPT's words (AG-20 to AG-22), and that bad input never authorises."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stockade.approval.approver import (
    LEFT,
    MAX_GRANTED,
    NOBODY,
    Authoriser,
    Question,
    Reply,
    understand,
)
from stockade.approval.rules import Denied, RuleSet
from stockade.core.actions import Action, Finish, Shell

LS, RM = Shell(command="ls"), Shell(command="rm -rf .")


class Run:
    """What an authoriser does to its run."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.said: list[list[str]] = []

    @contextmanager
    def away(self) -> Iterator[list[str]]:
        self.said.append([])
        yield self.said[-1]

    def stop(self, why: str) -> None:
        self.stopped.append(why)


class Person:
    """Types these lines, one a question."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.asked: list[tuple[Action, str | None]] = []

    async def __call__(self, question: Question, problem: str | None) -> str | None:
        self.asked.append((question.action, problem))
        return self.lines.pop(0)


def authoriser(*lines: str | None) -> tuple[Authoriser, Person, Run]:
    run, person = Run(), Person(*lines)
    made = Authoriser(run, every=True)
    made.ask = person
    return made, person, run


@pytest.mark.parametrize("typed", ["y", "Y", " y ", "yes", "YES\n", "y -1", "y - 1"])
def test_what_authorises_one(typed: str) -> None:
    assert understand(typed) == Reply(granted=1)


@pytest.mark.parametrize(("typed", "count"), [("y -5", 5), ("Y -12", 12), ("yes -3", 3), (f"y -{MAX_GRANTED}", 9999)])
def test_what_authorises_several(typed: str, count: int) -> None:
    assert understand(typed) == Reply(granted=count)


@pytest.mark.parametrize(
    "typed",
    ["", "   ", "\n", "y -abc", "y -", "y --5", "y -0", "y -5x", "y -5 -6", "y-5", "y5", "y 5", "y -99999", "y +3",
     "y -1.5", "y -٣٤", "yes-", "y -1e9"],
)  # fmt: skip
def test_bad_input_is_asked_again(typed: str) -> None:
    with pytest.raises(ValueError, match="write y, y -N"):
        understand(typed)


@pytest.mark.parametrize("typed", ["n", "N", "no", "exit", "EXIT", " quit ", None])
def test_what_stops(typed: str | None) -> None:
    assert understand(typed) == Reply()


@pytest.mark.parametrize(
    ("typed", "scope"), [("o", "once"), ("r", "run"), (" Run", "run"), ("a", "always"), ("ALWAYS", "always")]
)
def test_what_allows_the_words_from_now_on(typed: str, scope: str) -> None:
    reply = understand(typed)
    assert (reply.granted, reply.scope, reply.words) == (1, scope, "")


@pytest.mark.parametrize("typed", ["use python3 instead", "yy", "yep?", "y, but in /tmp", "no, count bytes", "не надо"])
def test_anything_else_is_feedback(typed: str) -> None:
    assert understand(typed) == Reply(words=typed)


@pytest.mark.anyio
async def test_each_action_is_asked_about_by_itself() -> None:
    made, person, run = authoriser("y", "y")
    assert await made.judge(LS) is None
    assert await made.judge(RM) is None
    assert [action for action, _ in person.asked] == [LS, RM]
    assert run.said == [["y"], ["y"]]


@pytest.mark.anyio
async def test_y_n_counts_the_one_that_was_asked_about() -> None:
    made, person, _ = authoriser("y -3", "n")
    left: list[int | None] = []
    made.told = left.append
    assert [await made.judge(LS) for _ in range(3)] == [None] * 3
    assert len(person.asked) == 1
    assert left == [1, 0]
    assert await made.judge(RM) == LEFT
    assert len(person.asked) == 2


@pytest.mark.anyio
async def test_bad_input_never_authorises() -> None:
    """AutoGPT: `y -abc` said "Invalid input format" and ran the command."""
    made, person, run = authoriser("y -abc", "", "n")
    assert await made.judge(RM) == LEFT
    problems = [problem for _, problem in person.asked]
    assert problems[0] is None
    assert "authorises nothing" in (problems[1] or "")
    assert "nothing was typed" in (problems[2] or "")
    assert run.stopped == [LEFT]
    assert run.said == [["y -abc", "", "n"]]


@pytest.mark.anyio
async def test_feedback_goes_to_the_bot_and_the_run_goes_on() -> None:
    made, _, run = authoriser("count the bytes too")
    assert await made.judge(LS) == "the user refused it: count the bytes too"
    assert run.stopped == []


@pytest.mark.anyio
async def test_the_end_of_input_stops_the_run() -> None:
    made, _, run = authoriser(None)
    assert await made.judge(LS) == LEFT
    assert run.stopped == [LEFT]


@pytest.mark.anyio
async def test_nobody_to_ask_means_refused_and_stopped() -> None:
    run = Run()
    made = Authoriser(run, every=True)
    assert await made.judge(LS) == NOBODY
    assert run.stopped == [NOBODY]
    assert await made.judge(Finish(answer="done")) is None


@pytest.mark.anyio
async def test_continuous_mode_ends_after_its_limit_and_can_be_taken_back() -> None:
    made, person, _ = authoriser("n", "n")
    made.granted = 2
    assert [await made.judge(LS) for _ in range(2)] == [None, None]
    assert await made.judge(LS) == LEFT
    made.granted = None
    assert [await made.judge(LS) for _ in range(50)] == [None] * 50
    made.take_back()
    assert not made.goes_on_alone
    assert await made.judge(LS) == LEFT
    assert len(person.asked) == 2


@pytest.mark.anyio
async def test_rules_go_first_whoever_authorises() -> None:
    made = Authoriser(run := Run(), RuleSet(deny=(Denied(name="rm", reason="never"),)), every=True)
    made.granted = None
    assert await made.judge(LS) is None
    assert "never" in (await made.judge(RM) or "")
    assert run.stopped == []


@pytest.mark.anyio
@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize(
    ("lines", "asked", "stops"),
    [(("y", "y"), 2, 0), (("y -2",), 1, 0), (("n", "n"), 2, 2), (("exit", "y"), 2, 1), (("no, count", "y"), 2, 0),
     (("y -x", "y -2"), 2, 0), (("r",), 1, 0), (("a",), 1, 0)],
)  # fmt: skip
async def test_one_dialect_for_a_planner_and_for_approve_ask(
    every: bool, lines: tuple[str, ...], asked: int, stops: int
) -> None:
    run, person = Run(), Person(*lines)
    made = Authoriser(run, every=every)
    made.ask = person
    done = [await made.judge(RM) is None for _ in range(2)]
    assert len(person.asked) == asked
    assert len(run.stopped) == stops
    assert done.count(True) == 2 - sum(line in ("n", "exit", "no, count") for line in lines)
