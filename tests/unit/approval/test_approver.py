"""Rules first, then the user; what is remembered, and what never is."""

from pathlib import Path

import pytest

from stockade.approval.approver import Question, Reply, RulesApprover, Scope
from stockade.approval.remembered import ApprovalFile, Remembered
from stockade.approval.rules import Rule, RuleSet, rule_set
from stockade.core.actions import Finish, Refused, Shell, ToolCall, WriteFile
from stockade.loop.observe import describe
from stockade.runtime.hooks import folders_of, place_of
from stockade.testing.conformance.store import first
from stockade_sandbox.policy import FolderRule, Policy


class Person:
    """Says the same to every question, and counts them."""

    def __init__(self, allow: Scope | None, words: str = "") -> None:
        self.reply = Reply(allow=allow, words=words)
        self.asked: list[Question] = []

    async def __call__(self, question: Question) -> Reply:
        self.asked.append(question)
        return self.reply


ASK = RuleSet(default="ask")


@pytest.mark.anyio
async def test_nobody_to_ask_means_no() -> None:
    reason = await RulesApprover(ASK, None).judge(Shell(command="make"))
    assert reason is not None
    assert "make" in reason


@pytest.mark.anyio
async def test_once_asks_again_and_run_does_not() -> None:
    once, run = Person("once"), Person("run")
    for person, times in ((once, 2), (run, 1)):
        approver = RulesApprover(ASK, person)
        assert await approver.judge(Shell(command="make")) is None
        assert await approver.judge(Shell(command="make")) is None
        assert len(person.asked) == times
    assert once.asked[0].action == Shell(command="make")


@pytest.mark.anyio
async def test_always_does_not_hold_for_another_folder_at_the_same_path(tmp_path: Path) -> None:
    """Nor for the same folder at another path, whatever lies there then."""
    file = ApprovalFile(tmp_path / "approvals.jsonl")

    def asks(folder: Path, person: Person | None = None) -> RulesApprover:
        started = first("r").model_copy(update={"policy": Policy(folders=(FolderRule(host=str(folder)),))})
        return RulesApprover(ASK, person, Remembered(file, place_of(started), "writing", folders=folders_of(started)))

    project, moved = tmp_path / "project", tmp_path / "moved"
    project.mkdir()
    await asks(project, Person("always")).judge(Shell(command="pytest -q"))
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
    first = RulesApprover(ASK, Person("always"), Remembered(file, here, "writing"))
    assert await first.judge(Shell(command="pytest -q")) is None
    later = RulesApprover(ASK, None, Remembered(file, here, "writing"))
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
        elsewhere = RulesApprover(ASK, None, Remembered(file, place, bot))
        assert await elsewhere.judge(Shell(command="pytest -q")) is not None, (place, bot)


@pytest.mark.anyio
async def test_what_was_allowed_never_overrules_a_refusal() -> None:
    remembered, person = Remembered(), Person("run")
    assert await RulesApprover(ASK, person, remembered).judge(Shell(command="rm -r x")) is None
    assert await RulesApprover(rule_set("microbots"), person, remembered).judge(Shell(command="rm -r x")) is not None


@pytest.mark.anyio
async def test_what_cannot_be_read_is_asked_every_time() -> None:
    person = Person("run")
    approver = RulesApprover(ASK, person)
    for _ in range(2):
        assert await approver.judge(Shell(command="echo 'x")) is None
    assert len(person.asked) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("words", ["use make instead", "Nein: \u00fcbel, \u201ecc\u201c!  {x}", "n o"])
async def test_the_users_words_reach_the_bot_as_typed(words: str) -> None:
    reason = await RulesApprover(ASK, Person(None, words)).judge(Shell(command="cc x.c"))
    assert describe(Refused(reason=reason or ""), 1000) == f"This was not run: the user refused it: {words}"


@pytest.mark.anyio
async def test_a_refusal_without_words_is_told_as_one() -> None:
    assert await RulesApprover(ASK, Person(None)).judge(Shell(command="cc x.c")) == "the user refused it"


@pytest.mark.anyio
async def test_a_refusal_names_part_reason_and_way_out() -> None:
    reason = await RulesApprover(rule_set("microbots"), None).judge(Shell(command="cd x && rm -rf y"))
    assert reason is not None
    assert "rm -rf y" in reason
    assert "cd x" not in reason
    assert "Instead:" in reason


@pytest.mark.anyio
async def test_other_actions_are_judged_by_the_tools_name() -> None:
    rules = RuleSet(
        default="allow",
        rule=(
            Rule(program=("write_file",), writes=("*.lock",), decision="refuse", reason="it is made"),
            Rule(program=("deploy",), decision="refuse", reason="not today"),
        ),
    )
    approver = RulesApprover(rules, None)
    assert await approver.judge(WriteFile(path="a.lock", content="")) is not None
    assert await approver.judge(WriteFile(path="a.txt", content="")) is None
    assert await approver.judge(ToolCall(name="deploy")) is not None
    assert await approver.judge(Finish(answer="")) is None
