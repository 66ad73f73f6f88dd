"""A run whose user is asked through the official client: real sandboxes, a scripted model, both ways to ask."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import ElicitRequestParams, ElicitResult

from stockade.mcp_server import asking
from tests.unit.mcp_server.test_server import answer, client, data, folder, service, text

__all__ = ["folder"]
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("mode", ["auto", "legacy"])]

ENDS = [answer("finish", answer="the end")] * 3
TWO = [answer("shell", command="echo one > one.txt"), answer("shell", command="echo two > two.txt"), *ENDS]


class Person:
    """Says one thing after the other, and keeps what was asked."""

    def __init__(self, *says: ElicitResult) -> None:
        self.says, self.asked = list(says), list[ElicitRequestParams]()

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        return self.says.pop(0)

    @property
    def messages(self) -> list[str]:
        return [one.message for one in self.asked]


def form(**content: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=content)


def no() -> ElicitResult:
    return ElicitResult(action="decline")


async def run(folder: Path, mode: str, person: Callable[..., Any] | None, *lines: str, **more: Any) -> tuple[Any, str]:
    """What came of it, and the record."""
    found = service(folder, *lines, **{"approve": "ask", **more})
    async with client(found, mode=mode, elicitation_callback=person) as one:
        result = await one.call_tool("run_bot", {"task": "do it", "folder": "one"})
        return data(result), text(await one.call_tool("run_show", {"run": "last"}))


def written(result: Any) -> list[str]:
    return [change["path"] for change in result["changes"]]


async def test_each_action_is_the_users_to_allow(folder: Path, mode: str) -> None:
    person = Person(form(decision="allow"), form(decision="refuse", note="y"))
    result, record = await run(folder, mode, person, *TWO)
    assert (result["status"], result["answer"], written(result)) == ("done", "the end", ["one.txt"])
    assert ["echo one > one.txt" in person.messages[0], "echo two > two.txt" in person.messages[1]] == [True, True]
    assert "it was refused: y" in record
    properties = person.asked[0].model_dump(by_alias=True)["requestedSchema"]["properties"]
    assert properties["decision"]["enum"] == ["allow", "allow in this run", "always allow in this folder", "refuse"]


async def test_a_no_is_told_to_the_bot_and_who_leaves_ends_the_run(folder: Path, mode: str) -> None:
    result, record = await run(folder, mode, Person(no(), form(decision="allow")), *TWO)
    assert (result["status"], written(result)) == ("done", ["two.txt"])
    assert "without a word" in record
    result, _ = await run(folder, mode, Person(ElicitResult(action="cancel")), *TWO)
    assert (result["status"], written(result)) == ("stopped", [])
    assert "the user stopped the run" in result["detail"]


async def test_allowed_once_for_the_run_it_is_not_asked_again(folder: Path, mode: str) -> None:
    again = answer("shell", command="echo one >> one.txt")
    person = Person(form(decision="allow in this run"))
    result, _ = await run(folder, mode, person, again, again, *ENDS)
    assert (result["status"], len(person.asked)) == ("done", 1)


async def test_a_reply_that_does_not_fit_is_asked_again_and_then_a_no(folder: Path, mode: str) -> None:
    rubbish = [form(decision="sudo"), form(), form(decision=["allow"])]
    person = Person(*rubbish[:2], form(decision="allow"), *rubbish)
    result, record = await run(folder, mode, person, *TWO)
    assert (result["status"], written(result)) == ("done", ["one.txt"])
    assert "does not fit the form" in person.messages[1]
    assert "it was refused: no reply fitted the form" in record


async def test_a_bot_asks_in_words(folder: Path, mode: str) -> None:
    asks = answer("ask_user", question="Which colour?")
    person = Person(form(answer="blue"), no())
    result, record = await run(folder, mode, person, asks, asks, *ENDS, approve="never", tool=("ask_user",))
    assert result["status"] == "done"
    assert person.messages == ["The bot asks: Which colour?"] * 2
    assert "blue" in record


async def test_a_client_that_cannot_ask_and_one_that_fails(folder: Path, mode: str) -> None:
    result, record = await run(folder, mode, None, *TWO)
    assert written(result) == []
    assert "Nobody is there to allow it." in record
    if mode == "legacy":

        async def broken(context: Any, params: ElicitRequestParams) -> ElicitResult:
            raise RuntimeError("no screen")

        result, record = await run(folder, mode, broken, *TWO)
        assert written(result) == []
        assert "it was refused: the client could not ask the user" in record


async def test_what_is_shown_is_what_is_done_without_secrets_and_tricks(
    folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGIN", "brown horse 4711")
    long = answer("shell", command=f"echo {'x' * asking.MAX_SHOWN} > long.txt")
    tricks = answer("shell", command="echo \u202egnp.exe brown horse 4711 > a.txt")
    person = Person(form(decision="allow"))
    result, record = await run(folder, mode, person, tricks, long, *ENDS, redact=("LOGIN",))
    assert "\\u202egnp.exe [redacted: LOGIN]" in person.messages[0]
    assert (result["status"], written(result)) == ("done", ["a.txt"])
    assert "too many to be shown" in record


async def test_a_client_that_goes_away_while_it_is_asked_stops_the_run(folder: Path, mode: str) -> None:
    asked = anyio.Event()

    async def silent(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    found = service(folder, *TWO, approve="ask")
    async with client(found, mode=mode, elicitation_callback=silent) as one, anyio.create_task_group() as group:
        group.start_soon(one.call_tool, "run_bot", {"task": "do it", "folder": "one"})
        await asked.wait()
        group.cancel_scope.cancel()
    async with client(found, mode=mode) as one:
        (listed,) = data(await one.call_tool("runs_list", {}))["result"]
        assert listed["status"] == "stopped"


async def test_nobody_replies_for_the_time_that_a_question_waits(
    folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "WAIT_S", 0.2)

    async def late(context: Any, params: ElicitRequestParams) -> ElicitResult:
        await anyio.sleep(1.5)
        return form(decision="allow")

    result, _ = await run(folder, mode, late, *TWO)
    assert (result["status"], written(result)) == ("stopped", [])
