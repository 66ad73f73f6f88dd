"""The toolbox of MCP servers keeps the promises of its port, in a real sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade.core.ports import Toolbox
from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.mcp.server import McpToolbox
from tests.unit.tools.test_mcp.support import rules, sandbox, scripted

pytestmark = pytest.mark.anyio
ECHO = scripted("echo", "only")


class TestConformance(ToolboxConformance):
    @pytest.fixture
    async def toolbox(self, tmp_path: Path) -> AsyncIterator[Toolbox]:
        async with sandbox(tmp_path) as place:
            yield McpToolbox((ECHO,), place, rules())

    @pytest.fixture
    def good(self) -> Call:
        return "echo__echo", {"text": "héllo"}, "héllo"
