"""Runs of a fleet whose machines share no folder: real Ray nodes that do not see the tasks' folder, each with a state
of its own; what they need and what they wrote goes through a store.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.store.opening import open_store
from stockade.testing import say
from tests.cli.conftest import DONE, PATIENCE_S, Stage
from tests.fleet.test_batch import begun, events, lines, tasks
from tests.fleet.test_ray import Nodes, two_nodes
from tests.support.scale import scaled

ALL = scaled(8)
"""Half of them on each node: 104 and 52 in `make test-long`."""
FIRST = (
    "mkdir -p made; test -e made/{0}-1 || date > made/{0}-1; ln -sf {0}-1 made/{0}-link; rm -f old/{0}; "
    "chmod 700 run.sh"
)
SECOND = "set -e; test ! -e old/{0}; cat made/{0}-link > made/{0}-2; echo {0} >> made/{0}-2"


def nodes_apart(stage: Stage) -> Any:
    """Two nodes that do not see the folder of the tasks."""
    hidden = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", str(stage.demo), "--"]
    return two_nodes(stage, hidden, str(stage.tmp_path / "states"), str(-(-ALL // 8)))


def batch(stage: Stage, nodes: Nodes, store: str, *flags: str, delay_s: float = 0.2) -> list[str]:
    """The arguments. Each task makes files, links one, removes one, goes on with that after a while, and does all of it
    again, as an action that was under way at a kill may not have been done.
    """
    rows = []
    (stage.demo / "old").mkdir(exist_ok=True)
    (stage.demo / "run.sh").write_text("true\n")
    (stage.tmp_path / "given.txt").write_text("given\n")
    for number in range(ALL):
        name = f"n{number}"
        (stage.demo / "old" / name).write_text(name)
        one, two = FIRST.format(name), SECOND.format(name)
        later = {"content": say("shell", command=two), "delay_s": delay_s}
        again = say("shell", command=f"set -e; cmp /copied/given.txt /dev/stdin <<< given; {one}; {two}")
        model = stage.script(say("shell", command=one), later, again, DONE, name=f"{name}.jsonl")
        rows.append({"id": name, "task": "make", "folder": "demo", "files": ["given.txt"], "model": model,
                     "check": f"test -s made/{name}-2"})  # fmt: skip
    where = ["--on", f"ray:{nodes.address}", "--workspaces", store, "--parallel", str(ALL)]
    return ["batch", "run", str(tasks(stage, *rows)), *where, *flags]


def check(stage: Stage) -> None:
    """All of it is in the folder of the tasks, once, and nothing else."""
    assert {one["id"]: (one["outcome"], one["kept"]) for one in lines(stage)} == {
        f"n{number}": ("solved", "") for number in range(ALL)
    }
    assert list((stage.demo / "old").iterdir()) == []
    for number in range(ALL):
        made = stage.demo / "made" / f"n{number}"
        date = Path(f"{made}-1").read_text()
        assert Path(f"{made}-2").read_text() == f"{date}n{number}\n"
        assert os.readlink(f"{made}-link") == f"n{number}-1"
    assert os.stat(stage.demo / "run.sh").st_mode & 0o777 == 0o700


async def wrote(record: str) -> int:
    """How many runs have written something, and not ended."""
    store = open_store(record)
    running = [one.run_id for one in await store.runs() if one.status == "running"]
    told = [{event.type for event in await store.events(run)} for run in running]
    await store.close()
    return sum("checkpoint" in types for types in told)


@pytest.mark.timeout(300 + 10 * ALL)
def test_a_node_is_killed_and_another_goes_on_with_the_files(stage: Stage) -> None:
    store = stage.tmp_path / "store"
    with nodes_apart(stage) as nodes:
        arguments = batch(
            stage, nodes, str(store), "--apply", delay_s=max(8, ALL)
        )  # the first must not be over when the last begins
        process = stage.start(*arguments)
        while not (stage.state / "runs.db").exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
        while anyio.run(wrote, str(stage.state / "runs.db")) < ALL:
            assert process.poll() is None, process.stderr and process.stderr.read()
        nodes.say("kill")
        assert process.wait(PATIENCE_S + 5 * ALL) == 0, process.stderr and process.stderr.read()
        check(stage)
    resumed = sum(one["resumed"] for one in lines(stage))
    print(f"{ALL} under way, {resumed} of them on the node that was killed")
    assert resumed >= ALL // 4
    for line in lines(stage):
        told = events(stage, line["run"])
        assert [one["host"] for one in told[0]["policy"]["folders"]] == [str(stage.demo)]
        ended = [one["observation"] for one in told if one["type"] == "action_finished"]
        cut = [one for one in ended if one["kind"] == "unknown"]
        assert len(cut) <= line["resumed"], "an action that was under way at the kill says so"
        done = [one["exit_code"] for one in ended if one not in cut]
        assert done == [0] * (3 - len(cut)), "what the first wrote was there for the second"
        assert ended[-1] not in cut
    assert not list((store / "runs").glob("*/*/*")), "the runs are over, and what they wrote is here"
    assert len(list((store / "folders").iterdir())) >= 2, "the folder and the file"
    states = stage.tmp_path / "states"
    there = [path for path in states.glob("*/stockade/runs/2*") if path.is_dir()]
    assert len(there) <= ALL // 2, "only what the killed node had"
    assert list(states.glob("first/stockade/folders/*/demo/data.csv"))


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of moto, which plays S3, in an environment of its own."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "moto"], check=True)
    python = tmp_path / "moto" / "bin" / "python"
    packages = ("moto[s3]==5.2.5", "flask", "flask-cors")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1", "ENDPOINT_URL": url,
                        "ALLOW_HTTP": "true"}.items():  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    command: list[str | Path] = [python, "-m", "moto.server", "-p", url.rpartition(":")[2]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        while not answers(f"{url}/bucket"):
            assert server.poll() is None
            time.sleep(0.1)
        yield "s3://bucket/pre"
        server.kill()


def answers(url: str) -> bool:
    """Whether the bucket is made."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        raise
    except OSError:
        return False


def test_by_s3_a_killed_driver_loses_nothing(stage: Stage, bucket: str) -> None:
    with nodes_apart(stage) as nodes:
        arguments = batch(stage, nodes, bucket, "--apply", delay_s=1)
        process = stage.start(*arguments)
        begun(process, stage.tmp_path / "tasks.results.jsonl", 1)
        process.kill()
        process.wait(PATIENCE_S)
        process = stage.start(*arguments)
        assert process.wait(PATIENCE_S) == 0, process.stderr and process.stderr.read()
        check(stage)


def test_what_was_changed_meanwhile_is_a_conflict_and_the_layer_is_here(stage: Stage) -> None:
    with nodes_apart(stage) as nodes:
        arguments = [*batch(stage, nodes, str(stage.tmp_path / "store"), delay_s=3), "--filter", "n1", "--apply"]
        process = stage.start(*arguments)
        while not list((stage.tmp_path / "store").glob("runs/*/at/*.json")):
            assert process.poll() is None, process.stderr and process.stderr.read()
        (stage.demo / "old" / "n1").write_text("the user's own")
        assert process.wait(PATIENCE_S) == 0, process.stderr and process.stderr.read()
    (line,) = lines(stage)
    assert "old/n1" in line["kept"]
    assert (stage.demo / "old" / "n1").read_text() == "the user's own"
    shown = stage.call("diff", line["run"])
    assert "made/n1-2" in shown.out, shown.err
    applied = stage.call("apply", line["run"], "--force")
    assert applied.status == 0, applied.err
    assert not (stage.demo / "old" / "n1").exists()
    undone = stage.call("undo", line["run"])
    assert undone.status == 0, undone.err
    assert (stage.demo / "old" / "n1").read_text() == "the user's own"


def test_what_came_into_a_folder_that_it_replaced_meanwhile_is_not_removed(stage: Stage) -> None:
    (stage.demo / "old").mkdir()
    (stage.demo / "old" / "known").write_text("known")
    replaces = say("shell", command="rm -r old && mkdir old && echo its > old/its")
    model = stage.script(replaces, {"content": DONE, "delay_s": 3})
    file, store = tasks(stage, {"id": "a", "task": "x", "folder": "demo", "model": model}), stage.tmp_path / "store"
    with nodes_apart(stage) as nodes:
        where = ["--on", f"ray:{nodes.address}", "--workspaces", str(store)]
        process = stage.start("batch", "run", str(file), *where, "--apply")
        while not list(store.glob("runs/*/at/*.json")):
            assert process.poll() is None, process.stderr and process.stderr.read()
        (stage.demo / "old" / "new").write_text("the user's own")
        assert process.wait(PATIENCE_S) == 0, process.stderr and process.stderr.read()
    assert (stage.demo / "old" / "new").read_text() == "the user's own"
    assert "old/new" in lines(stage)[0]["kept"]


def test_stopped_it_is_here_and_goes_on_there(stage: Stage) -> None:
    with nodes_apart(stage) as nodes:
        arguments = [*batch(stage, nodes, str(stage.tmp_path / "store"), "--apply", delay_s=60), "--filter", "n1"]
        process = stage.start(*arguments)
        while not list((stage.tmp_path / "store").glob("runs/*/at/*.json")):
            assert process.poll() is None, process.stderr and process.stderr.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 130, process.stderr and process.stderr.read()
        (line,) = lines(stage)
        assert "made/n1-1" in stage.call("diff", line["run"]).out
        again = batch(stage, nodes, str(stage.tmp_path / "store"), "--apply", delay_s=0)
        ended = stage.call(*again, "--filter", "n1")
        assert ended.status == 0, ended.err
    assert lines(stage)[-1]["resumed"]
    assert (stage.demo / "made" / "n1-2").exists()
    assert not (stage.demo / "old" / "n1").exists()


def test_out_of_turns_what_it_wrote_is_here(stage: Stage) -> None:
    with nodes_apart(stage) as nodes:
        arguments = [*batch(stage, nodes, "store"), "--filter", "n1", "--max-turns", "1"]
        ended = stage.call(*arguments, folder=stage.tmp_path)
        assert (ended.status, lines(stage)[0]["outcome"]) == (1, "budget"), ended.err
        assert "made/n1-1" in stage.call("diff", lines(stage)[0]["run"]).out
        (stage.tmp_path / "tasks.results.jsonl").unlink()  # as if it had been killed before its line
        ended = stage.call(*arguments, folder=stage.tmp_path)
    assert (ended.status, lines(stage)[0]["outcome"], lines(stage)[0]["resumed"]) == (1, "budget", True), ended.err
    assert "made/n1-1" in stage.call("diff", lines(stage)[0]["run"]).out
    assert not list((stage.tmp_path / "store").glob("runs/*/*/*"))


@pytest.mark.parametrize(("flags", "words"), [
    (("--on", "ray", "--workspaces", "/proc/none"), "'/proc/none' is no store of folders"),
    (("--on", "ray", "--workspaces", "s4://x"), "'s4://x' is no store of folders"),
    (("--workspaces", "/tmp/x"), "--workspaces is for runs on other machines"),
    (("--on", "ray", "--workspaces", "here", "--folder", "demo:rw"), "is to be written to directly (rw)"),
])  # fmt: skip
def test_what_cannot_be_is_said_before_anything_starts(stage: Stage, flags: tuple[str, ...], words: str) -> None:
    file = tasks(stage, {"id": "a", "task": "x", "model": stage.script(DONE)})
    ended = stage.call("batch", "run", str(file), *flags, folder=stage.tmp_path)
    assert (ended.status, words in ended.err, "Traceback" in ended.err) == (2, True, False), ended.err
    assert not lines(stage) if (stage.tmp_path / "tasks.results.jsonl").exists() else True


def test_a_store_that_holds_something_else_is_said(stage: Stage) -> None:
    store = stage.tmp_path / "store"
    with nodes_apart(stage) as nodes:
        arguments = [*batch(stage, nodes, str(store)), "--filter", "n1", "--retries", "0"]
        assert stage.call(*arguments).status == 0
        for tar in (store / "folders").glob("*.tar"):
            tar.write_bytes(b"not a tar")
        shutil.rmtree(stage.tmp_path / "states")
        (stage.tmp_path / "tasks.results.jsonl").unlink()
        ended = stage.call(*arguments)
    assert ended.status == 4, ended.err
    assert "is damaged in" in lines(stage)[-1]["detail"]
