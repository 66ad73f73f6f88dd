"""Runs over HTTP: begun, read as they go, answered, steered, ended, reviewed."""

import httpx2
import pytest

from stockade.testing import say
from tests.server.conftest import COUNT, DONE, Stage, asked, begin, stream, until


def test_a_run_is_begun_read_reviewed_applied_and_undone(stage: Stage, admin: httpx2.Client) -> None:
    run = begin(admin)
    told = until(admin, run, "end")
    assert [one.id for one in told[:-1]] == list(range(len(told) - 1))
    assert told[0].name == "run_started"
    assert told[-2].name == "run_finished"
    assert told[-1].id is None
    shown = admin.get(f"/v1/runs/{run}").json()
    assert (shown["status"], shown["answer"], shown["decided"]) == ("done", "3 lines", None)
    assert [change["path"] for change in shown["changes"]] == ["count.txt"]
    diff = admin.get(f"/v1/runs/{run}/diff")
    assert "+3" in diff.json()["files"][0]["patch"]
    assert admin.get(f"/v1/runs/{run}/files/count.txt").text == "3\n"
    assert admin.post(f"/v1/runs/{run}/apply", json={}).status_code == 428
    other = admin.post(f"/v1/runs/{run}/apply", json={}, headers={"If-Match": '"other"'})
    assert other.status_code == 412
    assert not (stage.demo / "count.txt").exists()
    applied = admin.post(f"/v1/runs/{run}/apply", json={}, headers={"If-Match": diff.headers["ETag"]})
    assert applied.json() == {"paths": ["count.txt"], "left": {}}
    assert (stage.demo / "count.txt").read_text() == "3\n"
    assert admin.get(f"/v1/runs/{run}").json()["decided"] == "applied"
    assert admin.post(f"/v1/runs/{run}/undo", json={}).json()["paths"] == ["count.txt"]
    assert not (stage.demo / "count.txt").exists()
    assert [one.name for one in until(admin, run, "end")[-3:]] == ["changes_applied", "changes_undone", "end"]


def test_some_paths_are_applied_and_the_rest_discarded(stage: Stage, admin: httpx2.Client) -> None:
    command = "mkdir -p some/deep && echo 1 > some/deep/one && echo 2 > two"
    run = begin(admin, model=stage.script("paths", say("shell", command=command), DONE))
    until(admin, run, "end")
    reply = admin.post(f"/v1/runs/{run}/apply", json={"paths": ["nothing"]}, headers={"If-Match": "*"})
    assert (reply.status_code, reply.json()["detail"]) == (422, "nothing was changed at nothing")
    reply = admin.post(f"/v1/runs/{run}/apply", json={"paths": ["some/deep/one"]}, headers={"If-Match": "*"})
    assert "some/deep/one" in reply.json()["paths"]
    assert (stage.demo / "some/deep/one").read_text() == "1\n"
    for paths, why in ((["some/deep/one"], " at some/deep/one"), ([], "")):
        reply = admin.post(f"/v1/runs/{run}/discard", json={"paths": paths})
        assert (reply.status_code, reply.json()["detail"]) == (422, f"nothing was changed{why}")
    seen = admin.get(f"/v1/runs/{run}/diff").headers["ETag"]
    assert admin.post(f"/v1/runs/{run}/discard", headers={"If-Match": '"other"'}).status_code == 412
    assert admin.post(f"/v1/runs/{run}/discard", headers={"If-Match": seen}).json()["paths"] == ["two"]
    assert not (stage.demo / "two").exists()
    assert admin.get(f"/v1/runs/{run}").json()["decided"] == "discarded"


def test_some_paths_are_thrown_away_and_the_bot_goes_on_without_them(stage: Stage, admin: httpx2.Client) -> None:
    (stage.demo / "old" / "in").mkdir(parents=True)
    (stage.demo / "old" / "in" / "a").write_text("a\n")
    (stage.demo / "old" / "b").write_text("b\n")
    command = "mkdir -p new/deep && echo 1 > new/deep/one && echo 2 > two && echo 3 >> data.csv && rm -r old && ls"
    ways = [say("shell", command=command), DONE, say("shell", command="cat two || true; ls . old/in; tail -1 data.csv")]
    run = begin(admin, model=stage.script("thrown", *ways, DONE))
    until(admin, run, "end")
    at, seen = f"/v1/runs/{run}", admin.get(f"/v1/runs/{run}/diff")

    def discard(*paths: str, etag: str = "*") -> httpx2.Response:
        return admin.post(f"{at}/discard", json={"paths": paths}, headers={"If-Match": etag})

    assert discard("two", etag='"other"').status_code == 412
    assert discard("two", "data.csv", etag=seen.headers["ETag"]).json()["paths"] == ["data.csv", "two"]
    assert discard("old/in/a").json()["paths"] == ["old", "old/in", "old/in/a"]
    assert discard("new/deep/one").json()["paths"] == ["new", "new/deep", "new/deep/one"]
    assert [one["path"] for one in admin.get(f"{at}/diff").json()["files"]] == ["old/b"]
    assert admin.get(at).json()["decided"] is None
    assert discard("two").status_code == 422

    admin.post(f"{at}/messages", json={"text": "go on"}).raise_for_status()
    told = until(admin, run, "end")
    chunks = next(one.data["observation"]["chunks"] for one in reversed(told) if one.name == "action_finished")
    said = "".join(chunk["text"] for chunk in chunks).splitlines()
    assert "No such file" in said[0]
    assert {"old", "data.csv"} <= set(said)
    assert {"new", "two"}.isdisjoint(said)
    assert said[-3:] == ["old/in:", "a", "c"]
    assert [one["path"] for one in admin.get(f"{at}/diff").json()["files"]] == ["old/b"]
    assert discard("old/b").json()["paths"] == ["old/b"]
    assert admin.get(at).json()["decided"] == "discarded"
    assert (stage.demo / "old" / "b").read_text() == "b\n"


def test_some_paths_are_undone_and_applied_again(stage: Stage, admin: httpx2.Client) -> None:
    command = "mkdir -p back/deep && echo 1 > back/deep/one && echo 2 > second"
    run = begin(admin, model=stage.script("back", say("shell", command=command), DONE))
    until(admin, run, "end")
    admin.post(f"/v1/runs/{run}/apply", json={}, headers={"If-Match": "*"}).raise_for_status()

    def undo(*paths: str) -> httpx2.Response:
        return admin.post(f"/v1/runs/{run}/undo", json={"paths": paths})

    assert (undo("three").status_code, undo("three").json()["detail"]) == (422, "nothing is applied at three")
    assert undo("back/deep").json() == {"paths": ["back/deep", "back/deep/one"], "left": {}}
    assert [path.name for path in (stage.demo / "back/deep", stage.demo / "second") if path.exists()] == ["second"]
    assert admin.get(f"/v1/runs/{run}").json()["decided"] == "applied"
    assert undo("back/deep").status_code == 422
    assert "back/deep/one" in admin.post(f"/v1/runs/{run}/apply", json={}, headers={"If-Match": "*"}).json()["paths"]
    assert (stage.demo / "back/deep/one").read_text() == "1\n"
    assert set(undo(".").json()["paths"]) >= {"back/deep/one", "second"}
    assert admin.get(f"/v1/runs/{run}").json()["decided"] == "undone"


def test_a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice(admin: httpx2.Client) -> None:
    run = begin(admin, approve="ask")
    number = asked(admin, run)["number"]
    before = until(admin, run, "action_started")
    assert admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": True}).status_code == 200
    after = until(admin, run, "end", before[-1].id)
    whole = until(admin, run, "end")
    assert [*before, *after] == whole
    assert len({one.id for one in whole}) == len(whole)


def test_what_is_read_while_it_runs_comes_as_it_happens(admin: httpx2.Client) -> None:
    run = begin(admin, approve="ask")
    live = stream(admin, run)
    names = [next(live).name]
    number = asked(admin, run)["number"]
    while names[-1] != "action_started":
        names.append(next(live).name)
    admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": True})
    names += [one.name for one in live]
    assert names[-2:] == ["run_finished", "end"]


def test_an_action_is_shown_and_refused_with_words_then_allowed(stage: Stage, admin: httpx2.Client) -> None:
    first, second = say("shell", command="echo no > no"), say("shell", command="echo yes > yes")
    run = begin(admin, approve="ask", model=stage.script("refused", first, second, DONE))
    one = asked(admin, run)
    assert one["action"]["command"] == "echo no > no"
    at = f"/v1/runs/{run}/approvals/{one['number']}"
    assert admin.get(f"/v1/runs/{run}").json()["status"] == "asking"
    for words in ("y", " ALWAYS ", "n", "y -3", "y - please"):
        reply = admin.post(at, json={"allow": False, "note": words})
        assert reply.status_code == 422, words
    assert admin.post(at, json={"allow": False, "note": "not that file"}).status_code == 200
    assert admin.post(at, json={"allow": True}).status_code == 409
    two = asked(admin, run)
    assert two["number"] != one["number"]
    admin.post(f"/v1/runs/{run}/approvals/{two['number']}", json={"allow": True, "scope": "session"})
    told = until(admin, run, "end")
    assert [change["path"] for change in told[-2].data["changes"]] == ["yes"]
    assert any("not that file" in str(one.data) for one in told if one.name == "action_finished")


def test_a_refusal_without_words_ends_the_run(admin: httpx2.Client) -> None:
    run = begin(admin, approve="ask")
    number = asked(admin, run)["number"]
    admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": False})
    until(admin, run, "end")
    assert admin.get(f"/v1/runs/{run}").json()["status"] == "stopped"


def test_a_question_is_answered_and_only_that_one(own: Stage) -> None:
    (own.path / "asks.toml").write_text('name = "asks"\nprompt = "Ask."\ntools = ["ask_user", "finish"]\n')
    own.serve("--bot", str(own.path / "asks.toml"))
    with own.client(own.token("asker")) as client:
        run = begin(client, model=own.script("question", say("ask_user", question="which file?"), DONE))
        one = asked(client, run)
        assert one["question"] == "which file?"
        at = f"/v1/runs/{run}/messages"
        assert client.post(f"/v1/runs/{run}/approvals/{one['number']}", json={"allow": True}).status_code == 409
        assert client.post(at, json={"text": "none", "question": 7}).status_code == 409
        assert client.post(at, json={"text": "data.csv", "question": one["number"]}).json() == {"as": "answer"}
        assert any("data.csv" in str(one.data) for one in until(client, run, "end") if one.name == "action_finished")


def test_words_steer_a_run_and_are_the_next_task_of_one_that_is_over(stage: Stage, admin: httpx2.Client) -> None:
    more = say("shell", command="echo more > more.txt")
    run = begin(admin, approve="ask", model=stage.script("steered", COUNT, DONE, more, DONE))
    number = asked(admin, run)["number"]
    at = f"/v1/runs/{run}/messages"
    assert admin.post(at, json={"text": "be quick"}).json() == {"as": "steer"}
    admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": True})
    told = until(admin, run, "end")
    assert [one.data["text"] for one in told if one.name == "message_injected"] == ["The user says: be quick"]
    assert admin.post(at, json={"text": "more"}).json() == {"as": "task"}
    number = asked(admin, run)["number"]
    admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": True})
    again = until(admin, run, "end", told[-2].id)
    assert again[0].data["task"] == "more"
    names = {change["path"] for change in admin.get(f"/v1/runs/{run}").json()["changes"]}
    assert names == {"count.txt", "more.txt"}


def test_a_run_is_held_and_goes_on(stage: Stage, admin: httpx2.Client) -> None:
    run = begin(admin, approve="ask", model=stage.script("held", COUNT, say("shell", command="true"), DONE))
    number = asked(admin, run)["number"]
    assert admin.post(f"/v1/runs/{run}/pause").status_code == 200
    admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": True, "scope": "session"})
    until(admin, run, "action_finished")
    assert admin.get(f"/v1/runs/{run}").json()["status"] == "paused"
    assert admin.post(f"/v1/runs/{run}/resume").status_code == 200
    number = asked(admin, run)["number"]
    admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": True})
    assert "paused" in [one.name for one in until(admin, run, "end")]


def test_a_run_is_cancelled_and_goes_on_later(stage: Stage, admin: httpx2.Client) -> None:
    run = begin(admin, model=stage.script("long", say("shell", command="echo 1 > one; sleep 600"), DONE))
    until(admin, run, "action_started")
    shown = admin.post(f"/v1/runs/{run}/cancel").json()
    assert (shown["status"], shown["reason"], shown["detail"]) == ("stopped", "user", "cancelled")
    assert admin.post(f"/v1/runs/{run}/cancel").status_code == 409
    assert admin.post(f"/v1/runs/{run}/resume").status_code == 200
    until(admin, run, "end")
    assert admin.get(f"/v1/runs/{run}").json()["status"] == "done"


def test_a_run_goes_back_to_a_turn_and_on_from_there_as_another(stage: Stage, admin: httpx2.Client) -> None:
    steps = [say("shell", command=f"echo {number} >> log") for number in range(3)]
    run = begin(admin, model=stage.script("back", *steps, DONE))
    until(admin, run, "end")
    assert admin.post(f"/v1/runs/{run}/rewind", json={"turn": 9}).status_code == 422
    reply = admin.post(f"/v1/runs/{run}/rewind", json={"turn": 1})
    assert reply.status_code == 201
    other = reply.json()["id"]
    until(admin, other, "end")
    assert admin.get(f"/v1/runs/{other}/files/log").text.split() == ["0", "1", "2"]
    assert [one.name for one in until(admin, other, "end")].count("run_resumed") == 1


def test_one_key_is_one_run(stage: Stage, admin: httpx2.Client) -> None:
    key, words = {"Idempotency-Key": "k1"}, {"task": "count", "folder": "."}
    first = admin.post("/v1/runs", json=words, headers=key)
    again = admin.post("/v1/runs", json=words, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert admin.post("/v1/runs", json={"task": "other"}, headers=key).status_code == 409
    with stage.client(stage.token("another")) as other:
        assert other.post("/v1/runs", json=words, headers=key).json()["id"] != first.json()["id"]


def test_runs_are_listed_by_page_and_by_state(stage: Stage) -> None:
    with stage.client(stage.token("pages", "read", "run")) as client:
        runs = [begin(client) for _ in range(5)]
        for run in runs:
            until(client, run, "end")
        found, cursor = list[str](), None
        while True:
            page = client.get("/v1/runs", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
            found += [one["id"] for one in page["runs"]]
            if found[-1] == runs[3]:
                behind = page["next"]
            if (cursor := page["next"]) is None:
                break
        assert found == runs[::-1]
        assert client.delete(f"/v1/runs/{runs[3]}", params={"force": True}).status_code == 204
        after = client.get("/v1/runs", params={"cursor": behind}).json()["runs"]
        assert [one["id"] for one in after] == [runs[2], runs[1], runs[0]]
        assert client.get("/v1/runs", params={"words": "COUNT wc"}).json()["runs"]
        assert client.get("/v1/runs", params={"words": "no such words"}).json()["runs"] == []
        assert client.get("/v1/runs", params={"status": "failed"}).json()["runs"] == []
        assert len(client.get("/v1/runs", params={"status": "done", "folder": str(stage.demo)}).json()["runs"]) == 4


def test_a_run_is_removed_when_its_changes_are_decided_on(admin: httpx2.Client) -> None:
    run = begin(admin)
    until(admin, run, "end")
    assert admin.delete(f"/v1/runs/{run}").status_code == 409
    assert admin.delete(f"/v1/runs/{run}", params={"force": True}).status_code == 204
    assert admin.get(f"/v1/runs/{run}").status_code == 404


@pytest.mark.parametrize("wrong", [
    {}, {"task": ""}, {"task": " "}, {"task": "t", "mode": "rw"}, {"task": "t", "bot": "../b.toml"},
    {"task": "t", "more": 1},
    {"task": "t", "bot": "nobody"}, {"task": "t", "folder": "/"}, {"task": "t", "folder": "../.."},
    {"task": "t", "folder": "a\0b"}, {"task": "t", "folder": "a" * 300}, {"task": "t", "limits": {"max_turns": 0}},
    {"task": "t", "upload": "a" * 16},
    {"task": "t", "protect": ["../x"]}, {"task": "t", "limits": {"timeout": "nan"}},
    {"task": "t", "output_schema": {"type": 7}},
])  # fmt: skip
def test_what_is_wrong_is_said_in_one_form(wrong: dict[str, object], admin: httpx2.Client) -> None:
    reply = admin.post("/v1/runs", json=wrong)
    assert reply.status_code in (404, 422), reply.text
    assert reply.headers["Content-Type"] == "application/problem+json"
    found = reply.json()
    assert found["status"] == reply.status_code
    assert "\n" not in found["detail"]
    assert "Traceback" not in reply.text
