"""A real sandbox with a toolbox of MCP servers in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stockade.core.ports import Sandbox
from stockade.runtime.sandboxes import open_sandbox
from stockade.tools.mcp.config import ServerConfig
from stockade.tools.mcp.server import McpToolbox, Rules
from stockade_sandbox.policy import Limits, Policy

SERVER = (Path(__file__).parents[3] / "support" / "mcp_server.py").read_text()


def scripted(name: str = "test", *modes: str) -> ServerConfig:
    return ServerConfig(name=name, command=("/usr/bin/python3", "-c", SERVER, *modes))


def rules(**more: object) -> Rules:
    values: dict[str, object] = {"timeout_s": 20.0}
    return Rules(**(values | more))  # type: ignore[arg-type]


@asynccontextmanager
async def sandbox(folder: Path, policy: Policy | None = None) -> AsyncIterator[Sandbox]:
    async with open_sandbox(policy or Policy(limits=Limits(command_timeout_s=30)), "bubblewrap", folder / "run") as box:
        yield box


@asynccontextmanager
async def toolbox(folder: Path, *servers: ServerConfig, **more: object) -> AsyncIterator[McpToolbox]:
    async with sandbox(folder) as box, McpToolbox(servers or (scripted(),), box, rules(**more)) as tools:
        yield tools
