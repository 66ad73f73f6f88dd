"""`--net` from the flag to the record."""

import json

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, Stage
from tests.support.engines import engine_environment

METADATA = "http://169.254.169.254/"
REASON = "169.254.169.254 is an address, and only names can be asked for"


@pytest.mark.parametrize(("net", "urls"), [("allow=good.test", ("http://evil.test/", METADATA)), ("open", (METADATA,))])
def test_refusals_are_said_shown_recorded_and_counted(stage: Stage, net: str, urls: tuple[str, ...]) -> None:
    ask = say("shell", command=f"curl -sS {' '.join(urls)}")
    ended = stage.call("run", "x", "--folder", str(stage.demo), "--model", stage.script(ask, DONE), "--net", net)
    assert ended.status == 0, ended.err
    assert f"stockade: {REASON}" in ended.err
    assert f"[network refused: GET {METADATA}: {REASON}]" in ended.err
    events = [json.loads(line) for line in stage.call("runs", "show", "--json").out.splitlines()]
    found = [event["host"] for event in events if event["type"] == "network_requested"]
    assert found == ["evil.test", METADATA][-len(urls) :]
    assert f"0 requests, {len(urls)} refused" in stage.call("runs", "show").out
    listed = "[network refused: GET evil.test:80: evil.test is not on the --net allow list]"
    assert (listed in ended.err) is (net != "open")


@pytest.mark.parametrize("backend", ["docker", "podman", "gvisor"])
def test_it_is_the_same_on_every_backend(stage: Stage, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend != "gvisor":
        for name, value in engine_environment(backend).items():
            monkeypatch.setenv(name, value)
    ask = say("shell", command=f"curl -sS http://evil.test/ {METADATA}")
    words = ("run", "x", "--sandbox", backend, "--model", stage.script(ask, DONE), "--net", "allow=good.test")
    ended = stage.call(*words)
    assert ended.status == 0, ended.err
    assert f"stockade: {REASON}" in ended.err
    assert f"[network refused: GET {METADATA}: {REASON}]" in ended.err
    assert "0 requests, 2 refused" in stage.call("runs", "show").out


def test_unconfined_cannot_limit_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKADE_ALLOW_ROOT_UNCONFINED", "1")
    ended = stage.call("run", "x", "--sandbox", "unconfined", "--model", stage.script(DONE), "--net", "open")
    assert ended.status == 4
    assert "cannot be limited" in ended.err


def test_a_sandbox_without_a_network_has_no_proxy(stage: Stage) -> None:
    ended = stage.call("sandbox", "exec", "--", "sh", "-c", "env; cat /proc/net/tcp")
    assert "proxy" not in ended.out
    assert ":0C38" not in ended.out
