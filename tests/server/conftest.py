"""The real server in a process of its own on loopback, a real sandbox, a scripted model, and httpx as its client."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stockade.server.tokens import SCOPES, Scope, Tokens
from stockade.testing import say
from tests.server.described import Description

PATIENCE_S = 240
COUNT = say("shell", thought="Count.", command="wc -l < data.csv > count.txt")
DONE = say("finish", answer="3 lines")


@dataclass
class Told:
    """Server-sent events, each with its id, name and data."""

    id: int | None
    name: str
    data: dict[str, Any]


@dataclass
class Stage:
    """A server's home, and its folder `demo`."""

    path: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    url: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    description: Description | None = None
    program: tuple[str, ...] = ("-m", "stockade.cli")
    """What Python is given, as by tests/support/aimed.py."""

    @property
    def demo(self) -> Path:
        return self.path / "demo"

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.path / "STATE" / "stockade" / "serve" / "tokens.json")

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.variables,
            **{f"XDG_{name}_HOME": str(self.path / name) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, *self.program, "serve", *arguments]

    def call(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*arguments), env=self.environment(), capture_output=True, text=True, timeout=PATIENCE_S,
            check=False, cwd=self.demo,
        )  # fmt: skip

    def script(self, name: str, *answers: str | dict[str, Any]) -> str:
        lines = [json.dumps(answer if isinstance(answer, dict) else {"content": answer}) for answer in answers]
        (self.path / name).write_text("".join(f"{line}\n" for line in lines))
        return f"scripted/{self.path / name}"

    def serve(self, *flags: str, port: int = 0, model: bool = True) -> "subprocess.Popen[bytes]":
        """Returns when it answers; its address is `url`. With a `model` by its flag, or none."""
        named = ("--model", self.script("default", COUNT, DONE)) if model else ()
        arguments = ("--port", str(port), "--folder", str(self.demo), *named)
        with (self.path / "stderr").open("ab") as log:
            process = subprocess.Popen(
                self.command(*arguments, *flags), env=self.environment(), stdout=subprocess.PIPE, cwd=self.demo,
                stderr=log, process_group=0,
            )  # fmt: skip
        self.running.append(process)
        assert process.stdout is not None
        with process.stdout:
            self.url = process.stdout.readline().decode().strip()
        assert self.url, (self.path / "stderr").read_text()
        return process

    def token(self, name: str, *scopes: Scope, at_once: int = 100, max_cost: float | None = None) -> str:
        return self.tokens.new(name, scopes or SCOPES, at_once, max_cost)

    def client(self, token: str | None, **how: Any) -> httpx2.Client:
        """Each answer is checked against the server's own description."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if self.description is None:
            self.description = Description(self.url)
        hooks = {"response": [self.description.check]}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, event_hooks=hooks, **how)

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server for all tests of a module; each takes tokens and scripts of its own."""
    made = make_stage(tmp_path_factory.mktemp("serve"))
    made.token("admin")
    try:
        made.serve()
        yield made
    finally:
        made.end()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Stage]:
    """One that is not started yet."""
    made = make_stage(tmp_path)
    try:
        yield made
    finally:
        made.end()


def make_stage(path: Path) -> Stage:
    made = Stage(path)
    made.demo.mkdir()
    (made.demo / "data.csv").write_text("a\nb\nc\n")
    return made


@pytest.fixture
def admin(stage: Stage, request: pytest.FixtureRequest) -> Iterator[httpx2.Client]:
    """With every scope, and a name of its own."""
    with stage.client(stage.token(request.node.name)) as client:
        yield client


def killed(stage: Stage) -> None:
    process = stage.running[-1]
    process.send_signal(signal.SIGKILL)
    process.wait()


def begin(client: httpx2.Client, **asked: Any) -> str:
    reply = client.post("/v1/runs", json={"task": "count", "folder": ".", **asked})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def stream(client: httpx2.Client, run: str, last: int | None = None, *, output: bool = False) -> Iterator[Told]:
    """As they come; the connection is closed when nobody reads on."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    more = {"output": "true"} if output else {}
    with client.stream("GET", f"/v1/runs/{run}/events", headers=headers, params=more) as reply:
        assert reply.status_code == 200
        fields = dict[str, str]()
        for line in reply.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                number = int(fields["id"]) if "id" in fields else None
                yield Told(number, fields["event"], json.loads(fields["data"]))
                fields = {}


def until(client: httpx2.Client, run: str, name: str, last: int | None = None) -> list[Told]:
    """The events as far as the first one of that name."""
    found = []
    for one in stream(client, run, last):
        found.append(one)
        if one.name == name:
            return found
    raise AssertionError(f"no {name} in {[one.name for one in found]}")


def asked(client: httpx2.Client, run: str) -> dict[str, Any]:
    """What the run asks, when it does."""
    while not (found := client.get(f"/v1/runs/{run}/approvals").json()):
        time.sleep(0.02)
        assert client.get(f"/v1/runs/{run}").json()["status"] in ("running", "asking")
    assert isinstance(found[0], dict)
    return found[0]
