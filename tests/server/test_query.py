"""A coder's clients of old: POST /query is a run of the bot `coder`, in the server's bounds."""

import time

import httpx2
import pytest

from tests.server.conftest import Stage

ADD = "def add(a, b):\n    return a + b"
WRONG, GOOD = (
    f"### Requirements\nnone\n### Code\n```python\n{code}\n```" for code in ("def add(a, b):\n    return 0", ADD)
)
ASKED = {"query": "Write add(a, b).", "examples": ["add(1, 2) == 3"]}


def test_a_query_is_answered_with_a_program_that_passes(own: Stage) -> None:
    own.serve("--model", own.script("coder", WRONG, GOOD))
    with own.client(own.token("one")) as client:
        assert client.get("/health").json()["status"] == "ok"
        (found,) = client.post("/query", json=ASKED).json()
        assert (found["status"], found["code"].strip(), found["attempts"], found["error"]) == ("success", ADD, 2, "")
        assert client.get(f"/v1/runs/{found['run']}").json()["bot"] == "coder"
    with own.client(own.token("two", "read", "run")) as other:
        assert other.get(f"/v1/runs/{found['run']}").status_code == 404


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"query": ""}, 422),
        ({"query": "Write add.", "examples": ["it works"]}, 422),
        ({"query": "Write add.", "tests": "x = ("}, 422),
        ({"task": "x"}, 422),
        ([], 422),
    ],
)
def test_what_makes_no_sense_begins_nothing(stage: Stage, admin: httpx2.Client, asked: object, status: int) -> None:
    before = len(admin.get("/v1/runs").json()["runs"])
    assert admin.post("/query", json=asked).status_code == status
    assert len(admin.get("/v1/runs").json()["runs"]) == before


def test_a_query_needs_a_token_that_may_begin_runs(stage: Stage) -> None:
    with stage.client(None) as nobody:
        assert nobody.post("/query", json=ASKED).status_code == 401
    with stage.client(stage.token("reads", "read")) as reader:
        assert reader.post("/query", json=ASKED).status_code == 403


def test_a_client_that_goes_away_ends_its_run(own: Stage) -> None:
    own.serve("--model", own.script("slow", {"content": GOOD, "delay_s": 200}))
    with own.client(own.token("one")) as client:
        with pytest.raises(httpx2.ReadTimeout):
            client.post("/query", json=ASKED, timeout=2)
        while (run := client.get("/v1/runs").json()["runs"][0])["status"] == "running":
            time.sleep(0.05)
        shown = client.get(f"/v1/runs/{run['id']}").json()
        assert (shown["status"], shown["reason"]) == ("stopped", "user")


def test_what_is_hidden_stays_so(own: Stage) -> None:
    own.variables["LOGIN"] = value = "brown horse 4711"
    program = f"### Requirements\nnone\n### Code\n```python\nimport os\nprint(os.environ['LOGIN'], '{value}')\n```"
    own.serve("--model", own.script("coder", program), "--env", "LOGIN", "--redact", "LOGIN")
    with own.client(own.token("one")) as client:
        answer = client.post("/query", json={"query": f"Print {value}."})
        assert answer.json()[0]["response"] == "[redacted: LOGIN] [redacted: LOGIN]\n"
        assert value not in answer.text
    assert value not in (own.path / "stderr").read_text()
