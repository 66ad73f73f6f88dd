"""Streamable HTTP from inside the sandbox, through its proxy or on its own loopback, with the official server."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stockade.core.errors import UsageError
from stockade.core.ports import Sandbox
from stockade.tools.mcp.config import ServerConfig
from stockade.tools.mcp.server import McpToolbox
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.policy import Limits, Network, Policy
from tests.support.site import certificates, to_loopback
from tests.unit.tools.test_mcp.support import rules
from tests.unit.tools.test_mcp.test_real_servers import PYTHON, planned

pytestmark = pytest.mark.anyio
INSIDE = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("inside", log_level="ERROR")
@server.tool()
def where() -> str:
    "Where it runs."
    import os
    return os.getcwd() + " as " + str(os.getuid())
server.run("streamable-http", port=8765)
"""


def official() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("far", log_level="ERROR")

    @server.tool()
    def echo(text: str) -> str:
        """Says it again."""
        return text

    @server.tool()
    async def hang() -> str:
        """Never ends."""
        await anyio.sleep_forever()
        return ""

    return server


class _Quiet(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """None."""

    @asynccontextmanager
    async def running(self, listener: socket.socket) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: self.serve(sockets=[listener]))
            try:
                yield
            finally:
                self.should_exit = self.force_exit = True


@asynccontextmanager
async def served(app: Any, certificate: Path | None = None) -> AsyncIterator[int]:
    """The port of loopback on which it is served."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, ssl_certfile=certificate)
        async with _Quiet(config).running(listener):
            yield listener.getsockname()[1]


@asynccontextmanager
async def sandbox(folder: Path, port: int) -> AsyncIterator[tuple[Sandbox, list[Any]]]:
    policy = Policy(network=Network(mode="allow", hosts=(f"good.test:{port}",)), limits=Limits(memory_bytes=0))
    heard: list[Any] = []
    base = folder / "run"
    async with BubblewrapSandbox(policy, prepare_layers(policy, base, None), base, egress=to_loopback) as place:
        place.on_network = heard.append
        yield place, heard


def far(port: int, host: str = "good.test") -> ServerConfig:
    return ServerConfig(name="far", url=f"http://{host}:{port}/mcp", headers={"X-Key": "k"})


async def test_through_the_rules_and_on_record(tmp_path: Path) -> None:
    app = official().streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )
    async with served(app) as port, sandbox(tmp_path, port) as (place, heard):
        async with McpToolbox((far(port),), place, rules()) as box:
            assert {spec.name for spec in box.specs} == {"far__echo", "far__hang"}
            assert (await box.call("far__echo", {"text": "over there"}, 20)).text == "over there"
            assert "did not answer within 0.5 s" in (await box.call("far__hang", {}, 0.5)).text
            assert (await box.call("far__echo", {"text": "again"}, 20)).text == "again"
        assert {event.host for event in heard} == {"good.test"}
        with pytest.raises(UsageError, match="far cannot be used"):
            async with McpToolbox((far(port, "bad.test"),), place, rules()):
                pass


async def test_over_tls_whose_certificate_is_judged_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates(tmp_path)
    app = official().streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )
    async with served(app, tmp_path / "site.pem") as port, sandbox(tmp_path, port) as (place, heard):
        secure = ServerConfig(name="far", url=f"https://good.test:{port}/mcp")
        with pytest.raises(UsageError, match="far cannot be used"):
            async with McpToolbox((secure,), place, rules()):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        async with McpToolbox((secure,), place, rules()) as box:
            assert (await box.call("far__echo", {"text": "sealed"}, 20)).text == "sealed"
        assert {event.host for event in heard} == {"good.test"}


async def test_without_a_network_it_cannot_be_reached(tmp_path: Path) -> None:
    policy = Policy()
    async with BubblewrapSandbox(policy, (), tmp_path / "run") as place:
        with pytest.raises(UsageError, match=r"far cannot be used.*nothing answers there"):
            async with McpToolbox((far(80),), place, rules()):
                pass


async def test_on_the_loopback_of_the_sandbox(tmp_path: Path) -> None:
    """A server that somebody started inside, where no way leads out."""
    plan = planned(tmp_path, {"unused": {"command": PYTHON}}, Policy(limits=Limits(memory_bytes=0)))
    base = tmp_path / "run"
    async with BubblewrapSandbox(plan.policy, prepare_layers(plan.policy, base, None), base) as place:
        await place.exec(["sh", "-c", "cat > /tmp/server.py"], INSIDE.encode())
        begun = await place.run(
            f"{PYTHON} /tmp/server.py >/tmp/log 2>&1 & "
            "for n in $(seq 300); do (: >/dev/tcp/127.0.0.1/8765) 2>/dev/null && break; sleep 0.1; done",
            60,
        )
        assert begun.exit_code == 0
        near = ServerConfig(name="near", url="http://127.0.0.1:8765/mcp")
        async with McpToolbox((near,), place, rules()) as box:
            assert (await box.call("near__where", {}, 20)).text == "/workspace as 1000"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "application/json", "content-encoding": "gzip"}, b"\x1f\x8b"),
        ({"content-type": "application/json"}, b'{"jsonrpc": "2.0"'),
        ({"content-type": "text/html"}, b"<html>"),
        ({"content-type": "text/event-stream"}, b"data: {]\n\n"),
        ({"content-type": "application/json"}, b" " * (65 << 20)),
        ({"location": "http://127.0.0.1/"}, b""),
    ],
)
async def test_answers_that_are_none(tmp_path: Path, headers: dict[str, str], body: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            status = 307 if "location" in headers else 200
            await Response(body, status_code=status, headers=headers)(scope, receive, send)

    notes: list[str] = []
    async with served(app) as port, sandbox(tmp_path, port) as (place, _):
        more = rules(required=False, note=notes.append)
        async with McpToolbox((far(port),), place, more) as box:
            assert box.specs == ()
        assert (await place.run("echo here")).stdout == b"here\n"
    assert "far was left out" in notes[0]
    assert "\n" not in notes[0]
