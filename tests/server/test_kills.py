"""The server is killed, or told to end, in the middle of runs: nothing that a client has seen is lost, nothing is done
twice, and a reader goes on where it was.
"""

import signal
from collections.abc import Callable

import httpx2
import pytest

from stockade.testing import say
from tests.server.conftest import DONE, Stage, Told, begin, killed, stream, until

STEPS = [say("shell", command=f"echo {number} >> log; sleep 0.2") for number in range(4)]


def _as_far_as(client: httpx2.Client, run: str, place: int) -> list[Told]:
    seen = []
    for one in stream(client, run):
        seen.append(one)
        if one.id == place:
            break
    return seen


def told_to_end(stage: Stage) -> None:
    process = stage.running[-1]
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130
    assert "Traceback" not in (stage.path / "stderr").read_text()


@pytest.mark.parametrize(("place", "end"), [
    (0, killed), (3, killed), (5, killed), (6, killed), (9, killed), (12, killed), (5, told_to_end), (10, told_to_end),
])  # fmt: skip
def test_a_run_goes_on_with_the_next_server(place: int, end: Callable[[Stage], None], own: Stage) -> None:
    token = own.token("t")
    own.serve()
    with own.client(token) as client:
        run = begin(client, model=own.script("steps", *STEPS, DONE))
        seen = _as_far_as(client, run, place)
        end(own)
    own.serve("--resume-on-start")
    assert f"run {run} goes on" in (own.path / "stderr").read_text()
    with own.client(token) as client:
        rest = until(client, run, "end", seen[-1].id)
        whole = until(client, run, "end")
        assert [*seen, *rest] == whole
        assert [one.id for one in whole[:-1]] == list(range(len(whole) - 1))
        names = [one.name for one in whole]
        assert names.count("run_started") == 1
        assert "run_resumed" in names
        assert names.count("action_started") <= 5
        lines = client.get(f"/v1/runs/{run}/files/log").text.split()
        assert len(lines) == len(set(lines)), "a command ran twice"
        assert client.get(f"/v1/runs/{run}").json()["status"] == "done"


def test_without_the_flag_the_record_says_what_was_cut_off_and_it_can_go_on(own: Stage) -> None:
    token = own.token("t")
    own.serve()
    with own.client(token) as client:
        run = begin(client, model=own.script("steps", *STEPS, DONE))
        _as_far_as(client, run, 5)
        killed(own)
    own.serve()
    with own.client(token) as client:
        assert client.get(f"/v1/runs/{run}").json()["status"] == "interrupted"
        assert [one["status"] for one in client.get("/v1/runs").json()["runs"]] == ["interrupted"]
        assert client.post(f"/v1/runs/{run}/resume").status_code == 200
        until(client, run, "end")
        assert client.get(f"/v1/runs/{run}").json()["status"] == "done"
