"""Runs of a real server by the client: the objects are those of a run here, and a broken connection is not seen."""

import socket
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from anyio import to_thread

from stockade import AsyncClient, Client, RunResult
from stockade.client.blocking import Run
from stockade.core.actions import Shell
from stockade.core.errors import (
    ChangedOnHost,
    Conflict,
    NotAllowed,
    NotFound,
    RequestRefused,
    ServerUnavailable,
    UsageError,
)
from stockade.core.events import ActionStarted, Paused, RunFinished, RunResumed, RunStarted, to_json
from stockade.server.models import Approval, Asked, Output
from stockade.testing import say
from stockade_sandbox.errors import ReviewOutdated
from tests.client.conftest import Wire
from tests.server.conftest import COUNT, DONE, Stage, killed

STEPS = [say("shell", command=f"echo {number} >> log; sleep 0.2") for number in range(4)]


def asked(run: Run) -> Asked:
    """What it asks, when it does."""
    while not (found := run.approvals()):
        assert run.show().status in ("running", "asking")
    return found[0]


def test_a_result_is_that_of_a_run_here(stage: Stage, client: Client) -> None:
    events = list[object]()
    result = client.run("count", folder=".", on_event=events.append, check="test -f count.txt")
    assert isinstance(result, RunResult)
    assert (bool(result), result.verified, result.answer, result.error) == (True, True, "3 lines", None)
    assert tuple(events) == result.events
    assert isinstance(result.events[0], RunStarted)
    assert isinstance(result.events[-1], RunFinished)
    assert [one.action.command for one in result.log if isinstance(one.action, Shell)] == [
        "wc -l < data.csv > count.txt"
    ]
    assert [change.path for change in result.changes] == ["count.txt"]
    assert "+3" in result.diff
    assert result.apply() == ("count.txt",)
    assert (stage.demo / "count.txt").read_text() == "3\n"
    assert result.changes == ()
    assert result.undo() == ("count.txt",)
    assert not (stage.demo / "count.txt").exists()


def test_a_folder_of_this_machine_is_sent_and_its_changes_are_read(client: Client, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a\nb\n")
    run = client.start("count", upload=tmp_path)
    assert run.result()
    assert run.read_file("count.txt") == "2\n"
    reviewed = run.diff()
    assert [one.path for one in reviewed.files] == ["count.txt"]
    with pytest.raises(ReviewOutdated):
        run.apply(reviewed.model_copy(update={"etag": "other"}))
    assert run.apply(reviewed).paths == ("count.txt",)
    assert not (tmp_path / "count.txt").exists()
    with pytest.raises(UsageError, match="there is no folder"):
        client.start("count", upload=tmp_path / "missing")


def test_actions_are_allowed_and_refused_by_a_callback(stage: Stage, client: Client) -> None:
    first, second = say("shell", command="echo no > no"), say("shell", command="echo yes > yes")
    seen = list[str]()

    def reply(question: Asked) -> Approval:
        assert isinstance(question.action, Shell)
        seen.append(question.action.command)
        return Approval(allow="yes" in question.action.command, note="not that file")

    result = client.run("t", folder=".", approve="ask", on_asked=reply,
                        model=stage.script("asked", first, second, DONE))  # fmt: skip
    assert seen == ["echo no > no", "echo yes > yes"]
    assert [change.path for change in result.changes] == ["yes"]
    result.discard()
    assert result.changes == ()


def test_words_steer_and_follow(stage: Stage, client: Client) -> None:
    more = say("shell", command="echo more > more.txt")
    run = client.start("count", folder=".", approve="ask", model=stage.script("words", COUNT, DONE, more, DONE))
    number = asked(run).number
    assert run.message("be quick") == "steer"
    assert run.approve(number, scope="session").status in ("running", "asking")
    assert run.result()
    assert run.message("more") == "task"
    run.approve(asked(run).number)
    assert {change.path for change in run.result().changes} == {"count.txt", "more.txt"}
    run.remove(force=True)
    with pytest.raises(NotFound):
        run.show()


def test_a_run_is_cancelled_resumed_and_gone_back_in(stage: Stage, client: Client) -> None:
    run = client.start("t", folder=".", model=stage.script("long", say("shell", command="sleep 600"), DONE))
    for event in run.events():
        if isinstance(event, ActionStarted):
            break
    shown = run.cancel()
    assert (shown.status, shown.reason) == ("stopped", "user")
    with pytest.raises(Conflict) as info:
        run.cancel()
    assert info.value.status == 409
    run.resume()
    assert run.result()
    other = run.rewind(0)
    assert other.id != run.id
    assert other.cancel().status == "stopped"


def test_what_a_command_writes_comes_between_the_events(stage: Stage, client: Client) -> None:
    told = say("shell", command="echo early; sleep 2")
    run = client.start("t", folder=".", model=stage.script("writes", told, DONE))
    assert any(isinstance(one, Output) and one.text == "early\n" for one in run.live())


def test_runs_are_found_again(client: Client) -> None:
    runs = [client.start("count") for _ in range(3)]
    for run in runs:
        run.result()
    mine = {line.id for line in client.runs(status="done")}
    assert mine >= {run.id for run in runs}
    assert not list(client.runs(folder="/nowhere"))
    assert client.attach(runs[0].id).show().answer == "3 lines"


def test_runs_are_found_by_their_words(stage: Stage, client: Client) -> None:
    run = client.start("weigh the zebra", model=stage.script("zebra", say("shell", command="echo quagga"), DONE))
    run.result()
    client.run("another")
    assert [line.id for line in client.runs(words="zebra quagga")] == [run.id]
    assert [line.id for line in client.runs(words="okapi")] == []


def test_what_a_run_made_comes_home_byte_for_byte(stage: Stage, client: Client, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a\n")
    key = "sk-ant-" + "api03-" + "a1B2" * 24
    made = say("shell", command=r"printf '\000\377\200end' > 'odd ü.bin'; echo " + key + " > key; ln -s key link")
    run = client.start("t", upload=tmp_path, model=stage.script("bytes", made, DONE))
    assert run.result()
    assert run.read_bytes("odd ü.bin") == b"\x00\xff\x80end"
    assert key not in run.read_file("key")
    for path in ("key", "link"):
        with pytest.raises(RequestRefused):
            run.read_bytes(path)
    assert run.read_bytes("data.csv") == b"a\n"
    with pytest.raises(NotFound):
        run.read_bytes("nothing")


def test_a_server_that_always_begins_anew_and_breaks_off_is_an_error_in_the_end() -> None:
    """It does not look at Last-Event-ID: what it says again is progress of nobody."""
    event = to_json(Paused(at=0.0, duration_s=1.0))
    told = f"id: 0\nevent: paused\ndata: {event}\n\n".encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n"
    asked = list[bytes]()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        asked.append(connection.recv(65536))
                        connection.sendall(head + told)

        threading.Thread(target=serve, daemon=True).start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "t", patience_s=0.5) as client:
            events = client.attach("x").events()
            assert isinstance(next(events), Paused)
            with pytest.raises(ServerUnavailable, match="was lost"):
                next(events)
        listener.shutdown(socket.SHUT_RDWR)
    assert len(asked) > 1
    assert all(b"last-event-id: 0" in one.lower() for one in asked[1:])


def test_what_the_server_has(client: Client) -> None:
    assert client.models()[0].startswith("scripted/")
    assert "writing" in client.bots()
    assert "python" in {tool.name for tool in client.tools()}
    assert {"sandbox"} <= {finding.name for finding in client.doctor()}


def test_one_key_is_one_run(client: Client) -> None:
    assert client.start("count", key="k").id == client.start("count", key="k").id != client.start("count").id


def test_errors_are_ours_and_plain(stage: Stage, client: Client) -> None:
    with Client(stage.url, "stk_no_such") as other, pytest.raises(NotAllowed, match="needs a token") as info:
        other.models()
    assert (info.value.status, info.value.__cause__) == (401, None)
    with Client(stage.url, stage.token("reader", "read")) as reader, pytest.raises(NotAllowed, match="scope run"):
        reader.start("t")
    with pytest.raises(RequestRefused, match="no bot") as refused:
        client.start("t", bot="nobody")
    assert refused.value.status == 422
    for number in ("a/../b", "?", "no such"):
        with pytest.raises(NotFound):
            client.attach(number).show()
    with pytest.raises(UsageError, match="inside `with Client"):
        Client(stage.url, "t").models()


def test_a_conflict_on_the_servers_folder_is_the_same_error_as_here(stage: Stage, client: Client) -> None:
    command = say("shell", command="echo bot > both.txt")
    (stage.demo / "both.txt").write_text("first\n")
    result = client.run("t", folder=".", model=stage.script("both", command, DONE))
    (stage.demo / "both.txt").write_text("edited\n")
    with pytest.raises(ChangedOnHost, match=r"both\.txt"):
        result.apply()
    assert result.apply(force=True) == ("both.txt",)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with Client("http://127.0.0.1:9", "t") as client, pytest.raises(ServerUnavailable, match="Connection refused"):
        client.models()


@pytest.mark.parametrize("url", ["ftp://h", "h:1", "https://", "https://u:p@h", "http://192.0.2.7:8711"])
def test_addresses_that_no_token_is_sent_to(url: str) -> None:
    with pytest.raises(UsageError):
        Client(url, "t")


def test_the_token_comes_from_a_variable_or_a_file(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = stage.token("filed")
    path = tmp_path / "token"
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    with Client(stage.url, path) as client:
        assert client.bots()
    monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(path))
    with Client(stage.url) as client:
        assert client.bots()
    monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(tmp_path / "missing"))
    monkeypatch.setenv("STOCKADE_TOKEN", token)
    with Client(stage.url) as client:
        assert client.bots()
    path.chmod(0o644)
    with pytest.raises(UsageError, match="others can read"):
        Client(stage.url, path)


def test_the_same_awaited(stage: Stage) -> None:
    async def work() -> None:
        async with AsyncClient(stage.url, stage.token("awaited")) as client:
            result = await client.run("count", folder=".")
            assert (await client.attach(result.run_id).diff()).files
            with pytest.raises(UsageError, match="runs an event loop"):
                result.apply()
            assert await to_thread.run_sync(lambda: [change.path for change in result.changes]) == ["count.txt"]
            assert result.run_id in [line.id async for line in client.runs("done")]
            names = [event.type async for event in client.attach(result.run_id).events()]
            assert names == [event.type for event in result.events]
            assert [event.type async for event in client.attach(result.run_id).events(2)] == names[3:]

    anyio.run(work)


@pytest.mark.parametrize("most", [700, 2000, 4500])
def test_a_connection_that_is_cut_again_and_again_loses_and_repeats_nothing(stage: Stage, most: int) -> None:
    token = stage.token(f"cut{most}")
    wire = Wire(stage.url, most)
    try:
        with Client(stage.url, token) as straight, Client(wire.url, token, patience_s=5) as client:
            run = straight.start("t", folder=".", model=stage.script(f"cut{most}", *STEPS, DONE))
            seen = list(client.attach(run.id).events())
            assert seen == list(run.events())
            assert isinstance(seen[-1], RunFinished)
            assert wire.cuts > 1
    finally:
        wire.close()


def test_a_server_that_is_killed_and_comes_back_is_waited_for(own: Stage) -> None:
    own.serve()
    with Client(own.url, own.token("t")) as client:
        run = client.start("t", folder=".", model=own.script("steps", *STEPS, DONE))
        seen = []
        for number, event in zip(count(), run.events(), strict=False):
            seen.append(event)
            if number == 6:
                killed(own)
                own.serve("--resume-on-start", port=urlsplit(own.url).port or 0)
        assert isinstance(seen[-1], RunFinished)
        assert sum(isinstance(event, RunStarted) for event in seen) == 1
        assert any(isinstance(event, RunResumed) for event in seen)
        assert seen == list(run.events())
        lines = run.read_file("log").split()
        assert len(lines) == len(set(lines)), "a command ran twice"


def test_a_server_that_does_not_go_on_with_the_run_says_so(own: Stage) -> None:
    own.serve()
    with Client(own.url, own.token("t")) as client:
        run = client.start("t", folder=".", model=own.script("steps", *STEPS, DONE))
        for event in run.events():
            if isinstance(event, ActionStarted):
                break
        killed(own)
        own.serve(port=urlsplit(own.url).port or 0)
        with pytest.raises(Conflict, match="was cut off"):
            run.result()
        run.resume()
        assert run.result()


def test_a_server_that_stays_away_is_an_error_in_the_end(own: Stage) -> None:
    own.serve()
    with Client(own.url, own.token("t"), patience_s=0.5) as client:
        run = client.start("t", folder=".", model=own.script("steps", *STEPS, DONE))
        events = run.events()
        next(events)
        killed(own)
        with pytest.raises(ServerUnavailable):
            list(events)
        with pytest.raises(ServerUnavailable):
            run.show()


def test_a_certificate_of_the_servers_own_is_known_by_its_fingerprint(own: Stage) -> None:
    own.serve("--tls-self-signed")
    token = own.token("t")
    said = (own.path / "stderr").read_text()
    fingerprint = next(line.split()[-1] for line in said.splitlines() if "SHA-256" in line)
    with Client(own.url, token, fingerprint=fingerprint) as client:
        assert client.run("count", folder=".")
    with Client(own.url, token, ca=own.path / "STATE" / "stockade" / "serve" / "cert.pem") as client:
        assert client.bots()
    with Client(own.url, token) as client, pytest.raises(ServerUnavailable, match="not trusted"):
        client.bots()
    other = "0" * 64
    with pytest.raises(NotAllowed, match="another fingerprint"), Client(own.url, token, fingerprint=other):
        pass
    with pytest.raises(UsageError, match="no SHA-256"):
        Client(own.url, token, fingerprint="12:34")
