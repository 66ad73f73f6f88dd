"""`stockade acp` as an editor starts it, driven by the SDK's own client."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

PATIENCE_S = 120
Choose = Callable[[ToolCallUpdate, list[PermissionOption]], str | None]


def shell(command: str, **more: Any) -> dict[str, Any]:
    return called("shell", command=command, **more)


def finish(answer: str) -> dict[str, Any]:
    return called("finish", answer=answer)


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}]}


@dataclass
class Editor:
    """What an editor's side keeps. `choose`: the option that its user takes, None to dismiss the question."""

    choose: Choose = lambda call, options: None
    updates: list[Any] = field(default_factory=list)
    asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    silent: bool = False
    """Its user does not answer."""

    def on_connect(self, conn: Any) -> None:
        """Nothing is sent from here."""

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        self.news.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self.news.set()
        if self.silent:
            await asyncio.sleep(PATIENCE_S)
        chosen = self.choose(tool_call, options)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    def __getattr__(self, name: str) -> Any:
        """fs/* and terminal/*: a test that gets here fails in the agent."""
        if name in ("read_text_file", "write_text_file", "create_terminal"):

            async def refuse(**kwargs: Any) -> Any:
                self.updates.append(f"used {name}")
                raise RequestError.method_not_found(name)

            return refuse
        raise AttributeError(name)

    async def until(self, ready: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not ready():
                self.news.clear()
                await self.news.wait()

    def of(self, kind: str) -> list[Any]:
        return [one for one in self.updates if getattr(one, "session_update", one) == kind]

    def words(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one.content.text for one in self.of(kind))

    def shown(self) -> list[str]:
        """The texts beside the tool calls."""
        content = [one for call in self.calls().values() for one in call.get("content") or ()]
        return [one["content"]["text"] for one in content if one["type"] == "content"]

    def calls(self) -> dict[str, dict[str, Any]]:
        """The tool calls as they stand, by id: what comes later replaces."""
        found: dict[str, dict[str, Any]] = {}
        for one in self.updates:
            if getattr(one, "session_update", "") in ("tool_call", "tool_call_update"):
                found.setdefault(one.tool_call_id, {}).update(one.model_dump(exclude_none=True))
        return found


@dataclass
class Stand:
    """A folder `demo`, a state folder, and the script that the model reads from."""

    tmp: Path
    demo: Path

    def script(self, *answers: dict[str, Any], name: str = "script.jsonl") -> str:
        path = self.tmp / name
        path.write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
        return f"scripted/{path}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **{f"XDG_{name}_HOME": str(self.tmp / name) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
        }

    def arguments(self, *more: str, model: str) -> list[str]:
        return ["-m", "stockade.cli", "acp", "--model", model, "--answers", "native", *more]

    @asynccontextmanager
    async def editor(
        self, *answers: dict[str, Any], flags: Sequence[str] = (), choose: Choose | None = None,
        model: str | None = None, can: ClientCapabilities | None = None,
    ) -> AsyncIterator[tuple[ClientSideConnection, Editor]]:  # fmt: skip
        """Connected and initialized; the agent has ended, with status 0, when it is left."""
        editor = Editor(choose or (lambda call, options: None))
        command = self.arguments(*flags, model=model or self.script(*answers))
        with (self.tmp / "stderr").open("w") as log:
            spawned = spawn_agent_process(
                editor, sys.executable, *command, env=self.environment, cwd=self.tmp,
                transport_kwargs={"limit": 50 << 20, "stderr": log},
            )  # fmt: skip
            async with asyncio.timeout(2 * PATIENCE_S), spawned as (connection, process):
                await connection.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=can)
                yield connection, editor
                await connection.close()
                assert process.stdin is not None
                process.stdin.close()
                assert await process.wait() == 0, self.errors
        assert not [one for one in editor.updates if isinstance(one, str)]

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """The record, as it stands."""
        command = (sys.executable, "-m", "stockade.cli", "runs", "export", run_id, "--format", "jsonl")
        process = await asyncio.create_subprocess_exec(
            *command, env=self.environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return [json.loads(line) for line in out.splitlines()]

    @property
    def errors(self) -> str:
        return (self.tmp / "stderr").read_text()

    def tree(self) -> dict[str, str]:
        return {str(path.relative_to(self.demo)): path.read_text() for path in self.demo.rglob("*") if path.is_file()}

    def left(self) -> list[str]:
        """Folders of runs that are there still."""
        return sorted(path.name for path in (self.tmp / "STATE" / "stockade" / "runs").glob("*"))

    def layers(self) -> list[str]:
        """Runs with changes that are kept still; what an undo needs is none."""
        return sorted(path.parts[-3] for path in (self.tmp / "STATE" / "stockade" / "runs").glob("*/*/upper"))


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    demo = tmp_path / "demo"
    demo.mkdir()
    (demo / "data.csv").write_text("a\nb\nc\n")
    return Stand(tmp_path, demo)
