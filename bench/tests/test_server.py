import json
import sys
from typing import Any

import pytest

from bench.client import BenchFailed, Contender, measure, server
from bench.contenders import BENCH, PYTHON, STDLIB
from bench.server import SUBMIT, answer, encode, text_bytes


def body(*tools: str) -> dict[str, Any]:
    return {"messages": [], "tools": [{"type": "function", "function": {"name": name}} for name in tools]}


def command_of(message: dict[str, Any]) -> Any:
    return json.loads(message["tool_calls"][0]["function"]["arguments"])


def test_ours_is_answered_with_json_actions() -> None:
    assert json.loads(answer(body(), 3, 10)["content"])["action"] == {"tool": "shell", "command": "echo 3"}
    assert json.loads(answer(body(), 10, 10)["content"])["action"]["tool"] == "finish"


def test_each_spelling_gets_the_work_and_its_own_end() -> None:
    assert command_of(answer(body("bash"), 3, 10)) == {"command": "echo 3"}
    assert command_of(answer(body("bash"), 10, 10)) == {"command": SUBMIT}
    assert command_of(answer(body("bash", "final_answer"), 10, 10)) == {"answer": "done"}


def test_an_answer_comes_whole_or_as_events() -> None:
    message = answer(body("bash"), 0, 1)
    kind, whole = encode(message, stream=False)
    assert (kind, json.loads(whole)["choices"][0]["finish_reason"]) == ("application/json", "tool_calls")
    kind, events = encode(message, stream=True)
    assert kind == "text/event-stream"
    assert events.endswith(b"data: [DONE]\n\n")


def test_text_of_strings_and_of_parts_is_counted() -> None:
    assert text_bytes([{"content": "äb"}, {"content": [{"text": "cd"}, {"image": 1}]}, {"content": None}]) == 5


def test_a_client_is_measured_from_the_outside() -> None:
    with server() as address:
        run = measure(STDLIB, 3, address, "floor")
    spent = [request.cpu_s for request in run.requests]
    assert len(spent) == 4
    assert spent == sorted(spent)
    assert 0 < spent[0] < spent[-1] <= run.own_s
    assert run.children_s > 0
    assert all(request.grew and request.rss_bytes > 1_000_000 for request in run.requests)


@pytest.mark.parametrize("argv", [["false"], ["true"], [sys.executable, "-c", "print('hello')"]])
def test_a_client_that_does_not_work_is_named(argv: list[str]) -> None:
    with server() as address, pytest.raises(BenchFailed, match="idler"):
        measure(Contender("idler", argv, {}), 3, address, "run")


def test_our_loop_does_all_turns(tmp_path: object) -> None:
    with server() as address:
        run = measure(
            Contender("ours", [PYTHON, f"{BENCH}/ours_loop.py", f"{tmp_path}/runs.db"], {}), 2, address, "ours"
        )
    assert [request.grew for request in run.requests] == [True, True, True]
