"""Who is asked for a name that --net does not have: when, how often, and what is on record before it holds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from stockade.approval import network
from stockade.approval.network import NetworkAsker
from stockade.approval.remembered import ApprovalFile, Remembered
from stockade_sandbox.results import NetworkRequest

pytestmark = pytest.mark.anyio


class Run:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.stopped: list[str] = []

    @contextmanager
    def away(self) -> Iterator[list[str]]:
        yield []

    def stop(self, why: str) -> None:
        self.stopped.append(why)


class User:
    """Gives `answers` in order; None is the end of input. `asked` has the questions, each with its problem."""

    def __init__(self, *answers: str | None, file: ApprovalFile | None = None) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, str | None]]()
        self.run, self.recorded = Run(), list[NetworkRequest]()
        self.asker = NetworkAsker(self.run, Remembered(file, ("/x:rw",), "bot"))
        self.asker.ask, self.asker.record = self.ask, self.record
        self.looked: Callable[[], None] = lambda: None

    async def ask(self, rule: str, problem: str | None) -> str | None:
        self.asked.append((rule, problem))
        await anyio.lowlevel.checkpoint()
        return self.answers.pop(0)

    async def record(self, request: NetworkRequest) -> None:
        self.looked()
        self.recorded.append(request)


async def test_what_is_asked_by_many_at_once_is_asked_once_and_one_by_one() -> None:
    user, said = User("y", "n"), dict[str, list[bool]]()

    async def wants(rule: str) -> None:
        said.setdefault(rule, []).append(await user.asker.allows(rule))

    async with anyio.create_task_group() as group:
        for rule in ("a.test", "b.test:8443") * 20:
            group.start_soon(wants, rule)
    assert said == {"a.test": [True] * 20, "b.test:8443": [False] * 20}
    assert user.asked == [("a.test", None), ("b.test:8443", None)]
    assert [(one.host, one.port, one.verdict, one.reason) for one in user.recorded] == [
        ("a.test", 0, "allowed", "the user was asked, and said: y"),
        ("b.test", 8443, "refused", "the user was asked, and said: n"),
    ]


async def test_an_answer_is_on_record_before_it_holds() -> None:
    user, seen = User("r"), list[bool]()

    def look() -> None:
        user.asker.ask = None
        seen.append(user.asker.may("a.test"))

    user.looked = look
    assert await user.asker.allows("a.test")
    assert seen == [False]
    assert user.asker.may("a.test")


async def test_a_yes_for_once_does_not_hold_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ONCE_S", 0.0)
    user = User("y", "n")
    assert not await user.asker.allows("a.test")  # it was for a moment that is over
    monkeypatch.setattr(network, "ONCE_S", 1000.0)
    assert not await user.asker.allows("a.test")
    assert [rule for rule, _ in user.asked] == ["a.test"] * 2


async def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "WAIT_S", 0.01)
    user = User()

    async def silent(rule: str, problem: str | None) -> str | None:
        user.asked.append((rule, problem))
        await anyio.sleep_forever()
        raise AssertionError

    user.asker.ask = silent
    with anyio.fail_after(20):
        assert not await user.asker.allows("a.test")
        assert not await user.asker.allows("a.test")
    assert user.asked == [("a.test", None)]
    assert user.recorded[0].reason == "the user was asked, and said: (no answer)"


async def test_words_are_for_the_bot_exit_ends_the_questions_and_bad_input_allows_nothing() -> None:
    user = User("", "y -x", "take the mirror", "y -2", None)
    assert not await user.asker.allows("a.test")
    assert [problem is None for _, problem in user.asked] == [True, False, False]
    assert user.run.words == ["a.test is not allowed: take the mirror"]
    assert await user.asker.allows("b.test")
    assert await user.asker.allows("c.test")
    assert not await user.asker.allows("d.test")
    assert not await user.asker.allows("e.test")
    assert [rule for rule, _ in user.asked] == ["a.test"] * 3 + ["b.test", "d.test"]
    assert user.run.stopped == []


async def test_for_always_is_kept_where_approvals_are(tmp_path: Path) -> None:
    file = ApprovalFile(tmp_path / "approvals.jsonl")
    user = User("always", "NEVER", file=file)
    assert await user.asker.allows("a.test")
    assert not await user.asker.allows("b.test")
    again = NetworkAsker(Run(), Remembered(file, ("/x:rw",), "bot"))
    assert [again.may(rule) for rule in ("a.test", "b.test", "c.test", "a.test:81")] == [True, False, False, False]
    assert await again.allows("a.test")
    elsewhere = NetworkAsker(Run(), Remembered(file, ("/y:rw",), "bot"))
    assert not elsewhere.may("a.test")


async def test_a_file_that_cannot_be_written_is_said_and_the_answer_holds_for_the_run(tmp_path: Path) -> None:
    file = ApprovalFile(tmp_path / "approvals.jsonl")
    user, notes = User("a", file=file), list[str]()
    (tmp_path / "approvals.jsonl").mkdir()
    user.asker.note = notes.append
    assert await user.asker.allows("a.test")
    assert [note.startswith("it holds for this run only: ") for note in notes] == [True]
