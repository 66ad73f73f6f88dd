"""`stockade batch` as it is typed: real sandboxes and record, a scripted model; killed, stopped and gone on with."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.fleet.results import driver_of
from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Stage, interrupt
from tests.support.fake_openai import Asked, FakeOpenAI, Reply, fails, says

DONE = say("finish", answer="3 lines")
COUNT = say("shell", thought="Count.", command="wc -l < data.csv > count.txt")


def tasks(stage: Stage, *rows: dict[str, Any]) -> Path:
    path = stage.tmp_path / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def lines(stage: Stage) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (stage.tmp_path / "tasks.results.jsonl").read_text().splitlines()]


def outcomes(stage: Stage) -> dict[str, str]:
    return {one["id"]: one["outcome"] for one in lines(stage)}


def test_outcomes_are_kept_apart_and_nothing_is_done_twice(stage: Stage) -> None:
    model = stage.script(COUNT, DONE)
    lazy = stage.script(COUNT, *[say("shell", command=f"echo {n}") for n in range(5)], name="lazy.jsonl")
    path = tasks(stage,
                 {"id": "good", "task": "count", "folder": "demo", "check": "test -f count.txt"},
                 {"id": "bad", "task": "count", "folder": "demo", "check": "test -f nowhere"},
                 {"id": "slow", "task": "count", "model": lazy, "limits": {"max_turns": 2}},
                 {"id": "wrong", "task": "count", "model": "scripted/nowhere.jsonl"})  # fmt: skip
    ended = stage.call("batch", "run", str(path), "--model", model, "--parallel", "3", "--apply")
    assert ended.status == 1, ended.err
    assert outcomes(stage) == {"good": "solved", "bad": "check failed", "slow": "budget", "wrong": "usage error"}
    (good,) = [one for one in lines(stage) if one["id"] == "good"]
    assert (good["applied"], good["kept"]) == (["count.txt"], ""), good
    assert (stage.demo / "count.txt").read_text() == "3\n"
    again = stage.call("batch", "run", str(path), "--model", model, "--parallel", "3", "--apply")
    assert "3 of 4 tasks were done before" in again.err
    assert Counter(one["id"] for one in lines(stage)) == {"good": 1, "bad": 1, "slow": 1, "wrong": 2}
    stage.call("batch", "retry", str(path), "--outcome", "budget", "--filter", "slow", "--model", model, "--apply")
    assert [one["attempt"] for one in lines(stage) if one["id"] == "slow"] == [1, 2]
    everything = json.loads(stage.call("batch", "status", "--json").out)
    assert (everything["results"], everything["running"], everything["tasks"]) == (
        str(stage.tmp_path / "tasks.results.jsonl"), False, 4,
    )  # fmt: skip
    assert "4 of 4" in stage.call("batch", "status").out
    table = stage.call("batch", "table", str(path))
    assert "check failed" in table.out
    assert "1 of 3, 33.3 % (6.1 to 79.2 at 95 %)" in table.out


def test_a_layer_that_is_damaged_ends_no_other_run(stage: Stage) -> None:
    hook = stage.tmp_path / "hook.py"
    hook.write_text(
        "import json, pathlib, sys\nasked = json.load(sys.stdin)\n"
        f"if asked['task'] == 'bad':\n    runs = pathlib.Path({str(stage.state / 'runs')!r})\n"
        "    next(runs.glob(f\"{asked['run']}/*/layer.json\")).write_text('x')\n"
    )
    config = stage.home / ".config" / "stockade" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[[hooks]]\nname = "h"\non = "before_finish"\ncommand = ["{sys.executable}", "{hook}"]\n')
    path = tasks(stage, *({"id": one, "task": one, "folder": "demo"} for one in ("bad", "good")))
    ended = stage.call("batch", "run", str(path), "--model", stage.script(COUNT, DONE), "--parallel", "1", "--apply")
    assert ended.status == 0, ended.err
    assert outcomes(stage) == {"bad": "solved", "good": "solved"}
    kept = {one["id"]: one["kept"] for one in lines(stage)}
    assert "layer.json" in kept["bad"], kept
    assert kept["good"] == ""
    assert (stage.demo / "count.txt").read_text() == "3\n"


def test_nothing_starts_where_a_line_is_wrong(stage: Stage) -> None:
    path = tasks(stage, {"id": "a", "task": "t"}, {"id": "a", "task": "t"})
    ended = stage.call("batch", "run", str(path), "--model", stage.script(DONE))
    assert (ended.status, "line 2: the id 'a'" in ended.err) == (2, True)
    assert not (stage.tmp_path / "tasks.results.jsonl").exists()


def ledger(stage: Stage) -> Counter[str]:
    """Each task's line in a folder that is not an overlay: written as often as its command ran."""
    return Counter((stage.demo / "ledger").read_text().split())


def killed_batch(stage: Stage, count: int, parallel: int = 3, delay_s: float = 0.6) -> list[str]:
    """The arguments of a batch of so many tasks, each of which notes itself in a ledger and then takes a while."""
    slow = {"content": DONE, "delay_s": delay_s}
    rows = []
    for number in range(count):
        note = say("shell", command=f"echo n{number} >> ledger")
        model = stage.script(note, slow, name=f"n{number}.jsonl")
        rows.append({"id": f"n{number}", "task": "note", "folder": "demo:rw", "model": model})
    return ["batch", "run", str(tasks(stage, *rows)), "--parallel", str(parallel)]


def begun(process: "subprocess.Popen[bytes]", results: Path, count: int, noted: Path | None = None) -> None:
    """Waits until so many attempts are in the results; with a ledger, until a further run has noted itself there."""
    while process.poll() is None:
        ended = results.read_bytes().count(b"\n") if results.exists() else 0
        if ended >= count and (noted is None or noted.read_bytes().count(b"\n") > ended):
            return
    raise AssertionError((process.stderr.read() if process.stderr else b"").decode())


def events(stage: Stage, run: str, *flags: str) -> list[dict[str, Any]]:
    told = stage.call("runs", "export", run, "--format", "jsonl", *flags)
    assert told.status == 0, told.err
    return [json.loads(line) for line in told.out.splitlines()]


def check_once(stage: Stage, *flags: str) -> None:
    """Each task is solved, and its command ran once, or its record says that nobody knows. A run that failed, as its
    record could not be reached for too long, is tried again as another one.
    """
    failed = Counter(one["id"] for one in lines(stage) if one["outcome"] not in ("solved", "cancelled"))
    found = [one for one in lines(stage) if one["outcome"] == "solved"]
    names = [json.loads(line)["id"] for line in (stage.tmp_path / "tasks.jsonl").read_text().splitlines()]
    assert Counter(one["id"] for one in found) == dict.fromkeys(names, 1)
    ran = ledger(stage)
    assert all(times <= 1 + failed[name] for name, times in ran.items()), (ran, failed)
    for one in found:
        told = events(stage, one["run"], *flags)
        assert [event["status"] for event in told if event["type"] == "run_finished"][-1:] == ["done"]
        begun = [event["action"]["action"].get("command") for event in told if event["type"] == "action_started"]
        assert begun.count(f"echo {one['id']} >> ledger") == 1
        ends = [event["observation"]["kind"] for event in told if event["type"] == "action_finished"]
        assert one["id"] in ran or "unknown" in ends, told


def test_killed_in_the_middle_it_goes_on_and_nothing_is_lost_or_done_twice(stage: Stage) -> None:
    arguments, results = killed_batch(stage, 10), stage.tmp_path / "tasks.results.jsonl"
    for kills in (2, 5):
        process = stage.start(*arguments)
        begun(process, results, kills, stage.demo / "ledger")
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    with results.open("ab") as file:
        file.write(b'{"id": "n0", "cut o')  # a power cut amid a line
    ended = stage.call(*arguments)
    assert ended.status == 0, ended.err
    check_once(stage)
    assert any(one["resumed"] for one in lines(stage))
    assert len({one["run"] for one in lines(stage)}) == 10


def test_the_first_ctrl_c_begins_nothing_more_the_second_stops_and_saves(stage: Stage) -> None:
    arguments, results = killed_batch(stage, 8), stage.tmp_path / "tasks.results.jsonl"
    process = stage.start(*arguments)
    begun(process, results, 1)
    interrupt(process)
    assert process.wait(PATIENCE_S) == 3
    first = lines(stage)
    assert 1 <= len(first) < 8
    assert {one["outcome"] for one in first} == {"solved"}
    stage.script(say("shell", command="echo n7 >> ledger"), {"content": DONE, "delay_s": 600}, name="n7.jsonl")
    process = stage.start(*arguments)
    begun(process, results, 7)
    driver = driver_of(results)
    assert driver is not None
    assert driver.pidfd is not None
    os.close(driver.pidfd)
    second = stage.call(*arguments)
    assert (second.status, "under way in another process" in second.err) == (2, True)
    assert stage.call("batch", "stop", arguments[2]).status == 0  # a SIGTERM is as the second Ctrl-C
    assert process.wait(PATIENCE_S) == 130
    assert outcomes(stage) == {**{f"n{number}": "solved" for number in range(7)}, "n7": "cancelled"}
    stage.script(say("shell", command="echo n7 >> ledger"), DONE, name="n7.jsonl")
    assert stage.call(*arguments).status == 0
    assert outcomes(stage) == {f"n{number}": "solved" for number in range(8)}
    assert ledger(stage) == {f"n{number}": 1 for number in range(8)}
    assert [one["run"] for one in lines(stage) if one["id"] == "n7"][0::2] == [lines(stage)[-1]["run"]]


@pytest.mark.anyio
@pytest.mark.parametrize("parallel", [1, 4])
async def test_what_the_server_fails_is_tried_again_and_each_attempt_kept(stage: Stage, parallel: int) -> None:
    """Also where all have begun already."""
    refused = iter([fails(401, "no")] * 2)
    async with FakeOpenAI(refuses=lambda asked: next(refused, None), otherwise=lambda: says(DONE)) as server:
        status, err = await served(stage, server, "--parallel", str(parallel), "--answers", "json")
    assert status == 0, err
    found = lines(stage)
    assert Counter(one["outcome"] for one in found) == {"model error": 2, "solved": 4}
    for name in [one["id"] for one in found if one["outcome"] == "model error"]:
        assert [one["attempt"] for one in found if one["id"] == name] == [1, 2]
    assert "attempts before the last  2" in err


@pytest.mark.anyio
async def test_a_server_that_only_fails_ends_the_batch(stage: Stage) -> None:
    async with FakeOpenAI(refuses=lambda _: fails(401, "no")) as server:
        status, err = await served(stage, server, "--parallel", "1", "--retries", "0", "--breaker", "3")
    assert (status, "the same failure came too often in a row" in err) == (5, True)
    assert [one["outcome"] for one in lines(stage)] == ["model error"] * 3


def priced(stage: Stage) -> None:
    """Each answer of the served model costs 0.01 USD."""
    table = stage.home / ".config" / "stockade" / "prices.toml"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text('"openai/fake" = { input = 0, output = 1000, window = 32000 }\n')


@pytest.mark.anyio
@pytest.mark.parametrize("on", [(), ("--on", "ray")], ids=["here", "ray"])
async def test_no_task_starts_that_could_cost_more_than_is_left(stage: Stage, on: tuple[str, ...]) -> None:
    priced(stage)
    answer = says(DONE, usage=(10, 0, 10))
    async with FakeOpenAI(otherwise=lambda: answer) as server:
        flags = (*on, "--parallel", "3", "--answers", "json", "--max-cost", "0.035", "-o", "max_cost=0.01")
        status, err = await served(stage, server, *flags)
        assert (status, "too little for the next task" in err) == (3, True), err
        assert [one["cost"] for one in lines(stage)] == pytest.approx([0.01] * 3)
        status, err = await served(stage, server, *flags[:-3], "0.04", *flags[-2:])
    assert status == 0, err
    assert sum(one["cost"] for one in lines(stage)) == pytest.approx(0.04)


@pytest.mark.anyio
@pytest.mark.parametrize("more", [("--max-cost", "0.08"), ()], ids=["more", "unbounded"])
async def test_what_the_money_of_the_batch_ended_goes_on_when_there_is_more(
    stage: Stage, more: tuple[str, ...]
) -> None:
    """Each task costs 0.02; what its own bound ends is over."""
    priced(stage)

    def answer(asked: Asked) -> Reply:
        return says(DONE if "count.txt" in str(asked.body["messages"]) else COUNT, usage=(10, 0, 10))

    async with FakeOpenAI(refuses=answer) as server:
        flags = ("--parallel", "1", "--answers", "json")
        status, err = await served(stage, server, *flags, "--max-cost", "0.03")
        assert (status, "what is left of --max-cost is too little" in err) == (3, True), err
        assert [one["outcome"] for one in lines(stage)] == ["solved", "cancelled"]
        status, err = await served(stage, server, *flags, *more)
        assert status == 0, err
        found = [one for one in lines(stage) if one["outcome"] == "solved"]
        assert [one["cost"] for one in found] == pytest.approx([0.02] * 4)
        assert len(lines(stage)) == 5
        assert [one["resumed"] for one in found] == [False, True, False, False]
        status, err = await served(stage, server, *flags, "-o", "max_cost=0.01", "--max-cost", "1")
    assert status == 1, err
    assert [one["outcome"] for one in lines(stage)][5:] == ["budget"] * 4


def test_settings_that_are_wrong_for_all_end_the_batch(stage: Stage) -> None:
    path = tasks(stage, *({"id": f"n{number}", "task": "t"} for number in range(4)))
    ended = stage.call("batch", "run", str(path), "--model", "scripted/no", "--parallel", "1", "--breaker", "2")
    assert (ended.status, "cannot read the script no" in ended.err) == (2, True), ended.err
    assert [one["outcome"] for one in lines(stage)] == ["usage error"] * 2


def test_at_the_deadline_it_stops_in_order_and_goes_on_later(stage: Stage) -> None:
    model = stage.script({"content": DONE, "delay_s": 600})
    path = tasks(stage, {"id": "a", "task": "t"}, {"id": "b", "task": "t"})
    ended = stage.call("batch", "run", str(path), "--model", model, "--parallel", "1", "--deadline", "4")
    assert (ended.status, "the deadline of the batch is over" in ended.err) == (3, True), ended.err
    assert set(outcomes(stage)) <= {"a"}
    stage.script(DONE)
    assert stage.call("batch", "run", str(path), "--model", model).status == 0
    assert outcomes(stage) == {"a": "solved", "b": "solved"}


async def served(stage: Stage, server: FakeOpenAI, *flags: str) -> tuple[int, str]:
    """Four tasks whose model is this server; the exit status and what was said."""
    path = tasks(stage, *({"id": f"n{number}", "task": "t"} for number in range(4)))
    environ = {**stage.environment(), "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
    command = [sys.executable, "-m", "stockade.cli", "batch", "run", str(path), "--model", "openai/fake", *flags]
    done = await anyio.run_process(command, env=environ, check=False)
    return done.returncode, done.stderr.decode()
