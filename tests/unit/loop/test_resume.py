"""A run that was cut at any event goes on: nothing is done twice, nothing is lost, the conversation is the same."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stockade.core.actions import Finish, Shell, Unknown
from stockade.core.budget import Budget
from stockade.core.errors import UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    Checkpoint,
    MessageInjected,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
    StopReason,
)
from stockade.core.messages import Message
from stockade.core.secrets import Redactor
from stockade.loop.resume import branch, last_network, pending_finish, resume, up_to
from stockade.loop.state import fold
from stockade.loop.verify import Compared, verify
from stockade.testing import FixedClock, MemorySandbox, MemoryStore, say
from stockade_sandbox.policy import Network
from stockade_sandbox.results import Chunk, CommandOutput, FolderLayer
from tests.unit.loop.helpers import Bench, started

SCRIPT = [
    say("shell", command="export A=1; cd /workspace/sub"),
    say("shell", command="one"),
    "nothing that can be read",
    say("shell", command="two"),
    say("finish", answer="all done"),
]


def resumed(task: str | None = None, budget: Budget | None = None, check: str | None = None) -> RunResumed:
    return RunResumed(
        at=2_000_000.0, version="0", task=task, model="scripted/x", sandbox="memory", budget=budget or Budget(),
        check=check,
    )  # fmt: skip


class Keeps:
    """A keeper whose folder changes with every action."""

    def __init__(self) -> None:
        self.count = itertools.count(1)

    async def keep(self) -> tuple[str | None, ...]:
        return (f"{next(self.count)}-x",)


class Commits(MemoryStore):
    """Remembers after how many events each commit ended: a run can be cut there and nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []

    async def append(self, run_id: str, events: Sequence[RunEvent], *, durable: bool = True) -> None:
        await super().append(run_id, events)
        self.ends.append((self.ends or [0])[-1] + len(events))


def ran(event: ActionStarted) -> str:
    action = event.action.action
    return action.command if isinstance(action, Shell) else ""


def sent(messages: Sequence[Message]) -> str:
    return "\n".join(f"{message.role}: {message.content}" for message in messages)


async def whole_run(script: Sequence[str] = SCRIPT, check: str | None = None) -> tuple[Bench, list[RunEvent]]:
    bench = Bench(script)
    bench.store = Commits()
    object.__setattr__(bench.parts, "store", bench.store)
    await bench.run(started(check=check))
    return bench, await bench.store.events("r1")


async def cut_and_resumed(events: list[RunEvent], script: Sequence[str], first: RunResumed) -> Bench:
    """What a new process does with a record that ends after `events`."""
    turns = sum(isinstance(event, ModelAnswered) for event in events)
    bench = Bench(script[turns:], clock=FixedClock(2_000_000.0))
    bench.store = MemoryStore()
    await bench.store.append("r1", events)
    object.__setattr__(bench.parts, "store", bench.store)
    await resume(events, first, bench.parts)
    return bench


@pytest.mark.anyio
async def test_cut_after_any_event_every_command_runs_at_most_once() -> None:
    whole, events = await whole_run()
    assert isinstance(whole.store, Commits)
    for place in whole.store.ends[:-1]:
        bench = await cut_and_resumed(events[:place], SCRIPT, resumed())
        record = await bench.store.events("r1")
        assert record[:place] == events[:place]
        last = record[-1]
        assert isinstance(last, RunFinished), place
        assert (last.status, last.answer) == ("done", "all done"), place
        begun = [ran(event) for event in record if isinstance(event, ActionStarted)]
        assert sorted(begun) == sorted(set(begun)), place
        before = {ran(event) for event in events[:place] if isinstance(event, ActionStarted)}
        assert not before.intersection(bench.sandbox.ran), place
        unknown = [e for e in record if isinstance(e, ActionFinished) and isinstance(e.observation, Unknown)]
        assert len(unknown) == isinstance(events[place - 1], ActionStarted), place


@pytest.mark.anyio
async def test_the_next_request_begins_with_every_byte_of_the_last() -> None:
    bench, events = await whole_run()
    asked = [sent(request.messages) for request in bench.script.requests]
    for place in range(3, len(events) - 1):
        again = await cut_and_resumed(events[:place], SCRIPT, resumed())
        turns = sum(isinstance(event, ModelAnswered) for event in events[:place])
        if turns and again.script.requests:
            assert sent(again.script.requests[0].messages).startswith(asked[turns - 1]), place


@pytest.mark.anyio
async def test_the_bot_is_told_what_is_new_and_what_is_unknown() -> None:
    _, events = await whole_run()
    place = next(n for n, e in enumerate(events) if isinstance(e, ActionStarted) and ran(e) == "one") + 1
    bench = await cut_and_resumed(events[:place], SCRIPT, resumed())
    text = sent(bench.script.requests[0].messages)
    assert "it is unknown whether this ran" in text
    assert "The shell is new" in text
    assert "cd -- /workspace" in bench.sandbox.ran[0]


@pytest.mark.anyio
@pytest.mark.parametrize("command", ["export A=1", ". ./env", "A=1; declare -gx A", "./anything"])
async def test_exported_variables_are_on_record_and_set_again(command: str) -> None:
    """What the shell says of its environment counts, never how a command is spelled."""
    output = CommandOutput(exit_code=0, cwd="/workspace")
    exports = replace(output, chunks=(Chunk.of("stdout", b'declare -x A="1"\n'),))
    script = [say("shell", command=command), say("finish", answer="x")]
    bench = Bench(script, MemorySandbox({"(s=$?; export -p; exit $s)": exports}))
    object.__setattr__(bench.parts, "snapshots", Keeps())
    await bench.run()
    events = await bench.store.events("r1")
    kept = [event for event in events if isinstance(event, Checkpoint)]
    assert [(one.files, one.exports) for one in kept] == [(("1-x",), 'declare -x A="1"\n')]
    assert isinstance(events[events.index(kept[0]) + 1], ActionFinished)
    again = await cut_and_resumed(events[:-2], script, resumed())
    assert again.sandbox.ran[0].startswith('declare -x A="1"\n')
    assert (
        "variables are set again" in sent((*again.script.requests, *[])[0].messages) if again.script.requests else True
    )


@pytest.mark.anyio
async def test_another_network_holds_until_another_is_said() -> None:
    _, events = await whole_run()
    allowed = Network(mode="allow", hosts=("pypi.org",))
    again = resumed("more").model_copy(update={"network": allowed})
    bench = await cut_and_resumed(events, [*SCRIPT, say("finish", answer="done")], again)
    record = await bench.store.events("r1")
    assert "only pypi.org" in sent(bench.script.requests[-1].messages)
    assert last_network(record) == allowed
    once_more = await cut_and_resumed(record, [*SCRIPT, *SCRIPT, say("finish", answer="done")], again)
    assert sent(once_more.script.requests[-1].messages).count("only pypi.org") == 1
    old = again.model_copy(update={"network": None})
    assert last_network([*events, old]) == events[0].policy.network  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_a_new_task_after_the_end_has_a_budget_of_its_own() -> None:
    _, events = await whole_run()
    more = [say("shell", command="three"), say("finish", answer="that too")]
    again = resumed("and another thing", Budget(max_turns=2))
    bench = await cut_and_resumed(events, [*SCRIPT, *more], again)
    record = await bench.store.events("r1")
    last = record[-1]
    assert isinstance(last, RunFinished)
    assert (last.status, last.answer) == ("done", "that too")
    assert sent(bench.script.requests[0].messages).count("New task: and another thing") == 1


@pytest.mark.anyio
async def test_time_between_is_nobodys_and_bounds_still_hold() -> None:
    _, events = await whole_run()
    state = fold([*events[:6], resumed()])
    assert state.spent(2_000_010.0).elapsed_s == pytest.approx(10.0)
    assert state.finished is None
    bench = await cut_and_resumed(events[:6], SCRIPT, resumed(budget=Budget(max_turns=2)))
    last = (await bench.store.events("r1"))[-1]
    assert isinstance(last, RunFinished)
    assert last.reason == "turns"


@pytest.mark.anyio
async def test_a_word_of_done_that_nobody_heard_is_heard_now() -> None:
    _, events = await whole_run(check="true")
    place = next(n for n, event in enumerate(events) if event.type == "check_finished")
    assert pending_finish(events[:place]) == Finish(answer="all done")
    bench = await cut_and_resumed(events[:place], SCRIPT, resumed(check="true"))
    last = (await bench.store.events("r1"))[-1]
    assert isinstance(last, RunFinished)
    assert (last.status, last.verified) == ("done", True)
    assert not bench.script.requests
    assert pending_finish(events) is None


def test_snapshots_are_those_of_the_layers_they_were_taken_of() -> None:
    one, other = (FolderLayer(host="/h", inside="/workspace", mode="overlay", strategy="overlay", layer=name)
                  for name in ("/l/0", "/l/1"))  # fmt: skip
    begun = SandboxStarted(at=1.0, backend="memory", layers=(one,))
    kept = Checkpoint(at=2.0, turn=1, files=("1-x",), exports="declare -x A=1\n")
    same = fold([started(), begun, kept, resumed(), begun])
    assert same.checkpoint == kept
    anew = fold([started(), begun, kept, resumed(), begun.model_copy(update={"layers": (other,)})])
    assert anew.checkpoint is not None
    assert (anew.checkpoint.files, anew.checkpoint.exports) == ((), "declare -x A=1\n")


@pytest.mark.anyio
async def test_a_branch_has_the_events_of_its_parent_and_a_name_of_its_own() -> None:
    _, events = await whole_run()
    for turn in range(6):
        made = branch(up_to(events, turn), "r2", turn, (), 5.0)
        assert isinstance(made[0], RunStarted)
        assert (made[0].run_id, made[0].parent, made[0].parent_turn, made[0].at) == ("r2", "r1", turn, 5.0)
        assert max((event.turn for event in made if isinstance(event, ModelAnswered)), default=0) == turn
        assert not isinstance(made[-1], RunFinished)
    for wrong in (-1, 6):
        with pytest.raises(UsageError, match="no turn"):
            up_to(events, wrong)


@pytest.mark.anyio
async def test_verify_names_the_first_difference_and_stops_there() -> None:
    bench, events = await whole_run()
    seen: list[Compared] = []

    def keep(compared: Compared) -> bool:
        seen.append(compared)
        return compared.field is None

    await verify(events, lambda: MemorySandbox(), keep, Redactor())
    assert [(one.turn, one.field) for one in seen] == [(1, None), (2, None), (4, None)]
    seen.clear()
    await verify(events, lambda: MemorySandbox({"one": 1}), keep, Redactor())
    assert [(one.turn, one.field, one.recorded, one.now) for one in seen[1:]] == [(2, "exit_code", "0", "1")]
    assert bench.sandbox.ran


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (None, "was interrupted"),
        ("user", "was interrupted"),
        ("tokens", "used up"),
        ("loop", "again and again"),
        ("gave_up", "had given up"),
        ("unreadable", "held no action"),
        ("model", "not yours"),
    ],
)
@pytest.mark.anyio
async def test_the_bot_is_told_why_the_run_had_stopped(reason: StopReason | None, words: str) -> None:
    _, events = await whole_run()
    ended = [RunFinished(at=1.0, status="stopped", reason=reason)] if reason else []
    bench = await cut_and_resumed([*events[:-3], *ended], SCRIPT, resumed())
    told = [event.text for event in await bench.store.events("r1") if isinstance(event, MessageInjected)]
    assert words in told[0]
