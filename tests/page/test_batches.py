"""The batches of the machine on the page and in the API, one of them as it goes on."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from stockade.testing import say
from tests.server.conftest import COUNT, DONE, PATIENCE_S, Stage, killed
from tests.server.test_page import TOO_WIDE, user_of

EVIL = "<img src=x onerror=alert(1)>"


def begin(stage: Stage, name: str, *rows: dict[str, Any]) -> "tuple[Path, subprocess.Popen[bytes]]":
    tasks = stage.path / f"{name}.jsonl"
    tasks.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command = [sys.executable, "-m", "stockade.cli", "batch", "run", str(tasks), "--parallel", "1"]
    process = subprocess.Popen(command, env=stage.environment(), cwd=stage.path, stderr=subprocess.DEVNULL)
    stage.running.append(process)
    return tasks.with_name(f"{name}.results.jsonl"), process


def test_one_is_watched_to_its_end(own: Stage, browser: Browser) -> None:
    own.serve()
    count, slow = own.script("count", COUNT, DONE), say("shell", command="sleep 4; wc -l < data.csv > count.txt")
    rows = [
        {"id": f"{EVIL}{number}", "task": "t", "folder": "demo", "model": count, "check": f"test {number} = 0"}
        for number in range(3)
    ]
    last = {"id": "last", "task": "t", "folder": "demo", "model": own.script("slow", slow, DONE), "tags": ["late"]}
    results, process = begin(own, "tasks", *rows, last)
    with user_of(own, browser, "ann") as user:
        page = user.page
        page.get_by_role("link", name="Batches").click()
        expect(page.locator(".runs")).to_contain_text("under way tasks")
        page.get_by_role("link", name="under way tasks").click()
        expect(page.locator("dl")).to_contain_text("3 of 4")
        expect(page.locator("tbody tr")).to_have_count(3)
        assert process.wait(PATIENCE_S) == 1
        expect(page.locator("dl")).to_contain_text("4 of 4")
        expect(page.locator("main")).to_contain_text("not under way")
        expect(page.locator("dl")).to_contain_text("2 of 4 solved, 50.0 % (15.0 % to 85.0 % at 95 %)")
        for width in (320, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert Axe().run(page).violations_count == 0
            assert page.evaluate(TOO_WIDE.replace('"main *"', '"main *:not(.wide *)"')) == []
        page.get_by_label("Outcome").select_option("check failed")
        expect(page.locator("tbody tr")).to_have_count(2)
        page.get_by_label("Outcome").select_option("")
        page.get_by_label("Search").fill("LATE")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="last").click()
        expect(page.locator(".bar .state")).to_have_text("done")
        (line,) = user.client.get("/v1/batches").raise_for_status().json()
        assert (line["results"], line["running"], line["done"], line["tasks"]) == (str(results), False, 4, 4)
        results.write_text("broken\n")
        assert "is no line of results" in user.client.get(f"/v1/batches/{line['id']}").json()["problem"]
        results.unlink()
        assert user.client.get("/v1/batches").json() == []
        assert user.client.get(f"/v1/batches/{line['id']}").status_code == 404


@pytest.mark.parametrize("scope", ["read", "run"])
def test_they_are_no_tokens(stage: Stage, scope: Any) -> None:
    with stage.client(stage.token(f"bob-{scope}", scope)) as bob:
        assert [bob.get(path).status_code for path in ("/v1/batches", "/v1/batches/0123456789ab")] == [403, 403]


def test_a_full_disk_ends_no_server_and_the_batch_goes_on_with_the_next(own: Stage) -> None:
    server = own.serve()
    wait = say("shell", command="sleep 1; wc -l < data.csv > count.txt")
    model = own.script("wait", wait, DONE)
    rows = [{"id": f"t{number}", "task": "t", "folder": ".", "model": model} for number in range(4)]
    token = own.token("ann")
    with own.client(token) as ann:
        line = ann.post("/v1/batches", json={"tasks": rows, "parallel": 2}).raise_for_status().json()
        at = f"/v1/batches/{line['id']}"
        before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        while ann.get(at).json()["running"]:
            time.sleep(0.1)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)
        assert ann.get(at).json()["done"] == 0
        assert server.poll() is None
    killed(own)
    own.serve("--resume-on-start")
    with own.client(token) as ann:
        while ann.get(at).json()["done"] < 4:
            time.sleep(0.1)
        assert {one["outcome"] for one in ann.get(at).json()["attempts"]} == {"solved"}


def test_one_is_asked_for_stopped_and_gone_on_with(own: Stage, browser: Browser) -> None:
    """By the API; killed with the server it goes on with the next one, and nothing is done twice."""
    own.serve()
    wait = say("shell", command="sleep 1; wc -l < data.csv > count.txt")
    model = own.script("wait", wait, DONE)
    asked = {
        "name": "mine", "parallel": 1,
        "tasks": [{"id": f"t{number}", "task": "t", "folder": ".", "model": model} for number in range(6)],
    }  # fmt: skip
    with own.client(own.token("ann")) as ann:
        for wrong, words in (
            ({"folder": "/etc"}, "not among the folders"), ({"folder": ".:rw"}, "may not be given rw"),
            ({"files": ["/etc/passwd"]}, "names no files"), ({"bot": "own.toml"}, "never a file"),
            ({"tesk": "t"}, "there is no key 'tesk'"),
        ):  # fmt: skip
            reply = ann.post("/v1/batches", json={"tasks": [{"id": "a", "task": "t", **wrong}]})
            assert (reply.status_code, words in reply.json()["detail"]) == (422, True), reply.text
        line = ann.post("/v1/batches", json=asked).raise_for_status().json()
        assert (line["running"], line["tasks"]) == (True, 6)
        at = f"/v1/batches/{line['id']}"
        stopped = subprocess.run(
            [sys.executable, "-m", "stockade.cli", "batch", "stop", line["results"]], env=own.environment(), text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert (stopped.returncode, "driven by stockade serve" in stopped.stderr) == (2, True)
        while ann.get(at).json()["done"] < 2:
            time.sleep(0.1)
    killed(own)
    own.serve("--resume-on-start")
    with user_of(own, browser, "bob") as user:
        while user.client.get(at).json()["done"] < 4:
            time.sleep(0.1)
        user.page.goto(f"{own.url}/#/batches/{line['id']}")
        user.page.get_by_role("button", name="Stop").click()
        expect(user.page.locator("main")).to_contain_text("not under way")
        told = user.client.get(at).json()
        assert not told["running"]
        ids = [one["id"] for one in told["attempts"] if one["outcome"] == "solved"]
        assert 4 <= len(ids) == len(set(ids)) < 6
        assert user.client.post(f"{at}/stop").status_code == 409
        rows = [json.loads(row) for row in Path(line["results"]).read_text().splitlines()]
        solved = [row["id"] for row in rows if row["outcome"] == "solved"]
        assert len(solved) == len(set(solved)), "a task was done twice"
