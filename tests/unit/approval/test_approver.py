"""Rules first, then the user; what is remembered, and what never is."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stockade.approval.approver import Authoriser, Question
from stockade.approval.remembered import ApprovalFile, Remembered
from stockade.approval.rules import RuleSet, built_in, with_own
from stockade.core.actions import Finish, ReadFile, Refused, Shell, SubTask, ToolCall, WriteFile
from stockade.loop.observe import describe
from stockade.runtime.hooks import folders_of, place_of
from stockade.testing.conformance.store import first
from stockade_sandbox.policy import FolderRule, Policy


class Run:
    """Of an approver."""

    @contextmanager
    def away(self) -> Iterator[list[str]]:
        yield []

    def stop(self, why: str) -> None:
        self.stopped = why


class Person:
    """Says the same to every question, and counts them."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.asked: list[Question] = []

    async def __call__(self, question: Question, problem: str | None) -> str | None:
        assert problem is None
        self.asked.append(question)
        return self.line


def approver(rules: RuleSet, person: Person | None = None, remembered: Remembered | None = None) -> Authoriser:
    made = Authoriser(Run(), rules, remembered)
    made.ask = person
    return made


ASK = RuleSet()


@pytest.mark.anyio
async def test_nobody_to_ask_means_no() -> None:
    reason = await approver(ASK).judge(Shell(command="make"))
    assert reason is not None
    assert "make" in reason


@pytest.mark.anyio
async def test_once_asks_again_and_run_does_not() -> None:
    once, run = Person("y"), Person("run")
    for person, times in ((once, 2), (run, 1)):
        made = approver(ASK, person)
        assert await made.judge(Shell(command="make")) is None
        assert await made.judge(Shell(command="make")) is None
        assert len(person.asked) == times
    assert once.asked[0].action == Shell(command="make")


@pytest.mark.anyio
async def test_what_was_allowed_goes_together_with_reading_and_with_nothing_else() -> None:
    made = approver(built_in(), Person("run"))
    assert await made.judge(Shell(command="make test 2>/dev/null | tail -3")) is None
    made.ask = None
    for line in ("make test", "cd src && make test | grep x"):
        assert await made.judge(Shell(command=line)) is None, line
    for line in ("make test x", "make test; rm x", "make test > x", "X=1 make test", "$(make test)"):
        assert await made.judge(Shell(command=line)) is not None, line


@pytest.mark.anyio
@pytest.mark.parametrize(
    "line", ["ls() { touch x; }", "alias ls=touch", "PATH=.:$PATH", "source ./activate", "hash -p x ls"]
)
async def test_no_table_holds_in_a_shell_where_names_may_mean_something_else(line: str) -> None:
    person = Person("y")
    made = approver(built_in(), person)
    for harmless in ("pip install x > log", "for f in *; do wc $f; done", "ls"):
        assert await made.judge(Shell(command=harmless)) is None
    assert len(person.asked) == 2
    assert await made.judge(Shell(command=line)) is None
    assert await made.judge(Shell(command="ls")) is None
    assert [one.action for one in person.asked[2:]] == [Shell(command=line), Shell(command="ls")]
    assert line in person.asked[-1].judgements[0].reason
    assert await made.judge(ReadFile(path="x")) is None
    assert len(person.asked) == 4


@pytest.mark.anyio
async def test_always_does_not_hold_for_another_folder_at_the_same_path(tmp_path: Path) -> None:
    """Nor for the same folder at another path, whatever lies there then."""
    file = ApprovalFile(tmp_path / "approvals.jsonl")

    def asks(folder: Path, person: Person | None = None) -> Authoriser:
        started = first("r").model_copy(update={"policy": Policy(folders=(FolderRule(host=str(folder)),))})
        return approver(ASK, person, Remembered(file, place_of(started), "writing", folders=folders_of(started)))

    project, moved = tmp_path / "project", tmp_path / "moved"
    project.mkdir()
    await asks(project, Person("a")).judge(Shell(command="pytest -q"))
    assert await asks(project).judge(Shell(command="pytest -q")) is None
    project.rename(moved)
    project.mkdir()
    for folder in (project, moved):
        assert await asks(folder).judge(Shell(command="pytest -q")) is not None
    project.rmdir()
    moved.rename(project)
    assert await asks(project).judge(Shell(command="pytest -q")) is None
    project.rmdir()
    project.mkdir()  # it may even have its inode
    assert await asks(project).judge(Shell(command="pytest -q")) is not None


@pytest.mark.anyio
async def test_always_holds_for_these_words_of_this_bot_in_this_place_only(tmp_path: Path) -> None:
    file, here = ApprovalFile(tmp_path / "state" / "approvals.jsonl"), ("/home/me/a:overlay",)
    first = approver(ASK, Person("a"), Remembered(file, here, "writing"))
    assert await first.judge(Shell(command="pytest -q")) is None
    later = approver(ASK, None, Remembered(file, here, "writing"))
    assert await later.judge(Shell(command="pytest -q")) is None
    assert await later.judge(Shell(command="pytest -q; rm -rf .")) is not None
    assert await later.judge(Shell(command="pytest -q > x")) is not None
    for place, bot in (
        (("/home/me/b:overlay",), "writing"),
        (("/home/me/a:rw",), "writing"),
        ((*here, "/data:rw"), "writing"),
        ((), "writing"),
        (here, "reading"),
    ):
        elsewhere = approver(ASK, None, Remembered(file, place, bot))
        assert await elsewhere.judge(Shell(command="pytest -q")) is not None, (place, bot)


@pytest.mark.anyio
@pytest.mark.parametrize("scope", ["run", "always"])
async def test_a_tools_call_is_allowed_with_its_arguments_and_no_others(tmp_path: Path, scope: str) -> None:
    """What a bot was talked into is a call of the same tool, with other arguments."""
    file = ApprovalFile(tmp_path / "approvals.jsonl")
    rent = ToolCall(name="send_money", arguments={"to": "GB29", "amount": 100})
    kept = Remembered(file, ("/a:overlay",), "writing")
    assert await approver(ASK, Person(scope), kept).judge(rent) is None
    later = approver(ASK, None, kept if scope == "run" else Remembered(file, ("/a:overlay",), "writing"))
    assert await later.judge(ToolCall(name="send_money", arguments={"amount": 100, "to": "GB29"})) is None
    for other in ({"to": "US13", "amount": 100}, {"to": "GB29", "amount": 1000}, {}, {**rent.arguments, "x": "\ud800"}):
        assert "Nobody" in (await later.judge(ToolCall(name="send_money", arguments=other)) or ""), other
    task = SubTask(task="look at a")
    helped = approver(ASK, Person(scope), kept)
    assert await helped.judge(task) is None
    assert "Nobody" in (await approver(ASK, None, kept).judge(SubTask(task="look at b")) or "")


RULES = """
[[command]]
name = "@tool+search"
options = "*"
[[command]]
name = "@tool+pay"
operand = '[{]"amount": [0-9], "to": "[^"]*"[}]'
[[deny]]
name = "rm"
options = "-r"
reason = "it deletes a whole tree"
instead = "delete the files by their names"
[[deny]]
name = "@write_file"
operand = ".*[.]lock"
[[deny]]
name = "@tool+deploy"
reason = "not today"
"""
OWN = with_own(tomllib.loads(RULES), "own.toml")


@pytest.mark.anyio
async def test_what_was_allowed_never_overrules_a_refusal() -> None:
    remembered, person = Remembered(), Person("run")
    assert await approver(ASK, person, remembered).judge(Shell(command="rm -r x")) is None
    assert await approver(OWN, person, remembered).judge(Shell(command="rm -r x")) is not None


@pytest.mark.anyio
@pytest.mark.parametrize("words", ["use make instead", "Nein: \u00fcbel, \u201ecc\u201c!  {x}", "n o", "yy"])
async def test_the_users_words_reach_the_bot_as_typed(words: str) -> None:
    reason = await approver(ASK, Person(words)).judge(Shell(command="cc x.c"))
    assert describe(Refused(reason=reason or ""), 1000) == f"This was not run: the user refused it: {words}"


@pytest.mark.anyio
async def test_a_refusal_names_part_reason_and_way_out() -> None:
    reason = await approver(OWN).judge(Shell(command="cd x && rm -rf y"))
    assert reason is not None
    assert "rm -rf y" in reason
    assert "cd x" not in reason
    assert "Instead:" in reason


@pytest.mark.anyio
async def test_other_actions_are_judged_by_the_tools_name_and_never_as_a_program() -> None:
    made = approver(OWN)
    assert "a.lock" in (await made.judge(WriteFile(path="a.lock", content="")) or "")
    assert "Nobody" in (await made.judge(WriteFile(path="a.txt", content="")) or "")
    assert "not today" in (await made.judge(ToolCall(name="deploy")) or "")
    assert "Nobody" in (await made.judge(ToolCall(name="ls")) or "")
    assert "Nobody" in (await made.judge(ToolCall(name="read_file")) or "")
    assert await made.judge(ToolCall(name="search")) is None
    assert await made.judge(ToolCall(name="pay", arguments={"to": "x", "amount": 9})) is None
    assert "Nobody" in (await made.judge(ToolCall(name="pay", arguments={"to": "x", "amount": 90})) or "")
    assert await made.judge(ReadFile(path="a.txt")) is None
    assert await made.judge(Finish(answer="")) is None


@pytest.mark.anyio
async def test_a_tool_that_was_allowed_is_no_command_of_that_name(tmp_path: Path) -> None:
    file = ApprovalFile(tmp_path / "approvals.jsonl")
    assert await approver(ASK, Person("a"), Remembered(file, (), "b")).judge(ToolCall(name="make")) is None
    later = approver(ASK, None, Remembered(file, (), "b"))
    assert await later.judge(ToolCall(name="make")) is None
    assert await later.judge(Shell(command="make")) is not None


@pytest.mark.anyio
async def test_what_was_done_before_the_run_went_on_counts_too() -> None:
    for before, allowed in (("make > log", True), ("PATH=.:$PATH", False)):
        made = approver(built_in())
        made.ran([Shell(command=before), ReadFile(path="x")])
        assert (await made.judge(Shell(command="ls")) is None) is allowed
