"""MCP servers and the inspector of npm, as a person would use them (make test-mcp; fetches them once)."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stockade.core.ports import Sandbox, Toolbox
from stockade.core.tool_plan import ToolContext, ToolPlan, ToolRequest
from stockade.testing import say
from stockade.tools.mcp.file import mcp_file
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.policy import FolderRule, Policy
from tests.support.toolchains import NODE_HOME, node_packages

pytestmark = pytest.mark.toolchain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "a.txt").write_text("alpha\n")
    return made


@asynccontextmanager
async def server(base: Path, folder: Path, package: str, *arguments: str) -> AsyncIterator[tuple[Toolbox, Sandbox]]:
    """One of npm's inside a sandbox of ordinary limits, without network, as `files`."""
    node, modules = node_packages()
    main = modules / "@modelcontextprotocol" / package / "dist/index.js"
    entry = {"command": str(node), "args": [str(main), *arguments], "lend": [str(NODE_HOME)]}
    file = base / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"npm": entry}}))
    plan = mcp_file(ToolRequest(file, ToolPlan(policy=Policy(folders=(FolderRule(host=str(folder), mode="overlay"),)))))
    async with BubblewrapSandbox(plan.policy, prepare_layers(plan.policy, base / "run"), base / "run") as place:
        (made,) = plan.toolboxes(ToolContext(place, plan.policy, "writing", base / "state"))
        async with made as box:
            yield box, place


@pytest.mark.anyio
async def test_the_filesystem_server_sees_the_folder_and_nothing_else(tmp_path: Path, folder: Path) -> None:
    async with server(tmp_path, folder, "server-filesystem", "/workspace") as (box, place):
        assert {"npm__read_text_file", "npm__write_file", "npm__edit_file"} <= {spec.name for spec in box.specs}
        assert (await box.call("npm__read_text_file", {"path": "/workspace/a.txt"}, 60)).text.startswith("alpha")
        await place.run("echo beta > b.txt; ln -s /etc/passwd link")
        assert "[FILE] b.txt" in (await box.call("npm__list_directory", {"path": "/workspace"}, 60)).text
        written = await box.call("npm__write_file", {"path": "/workspace/c.txt", "content": "gamma\n"}, 60)
        assert written.status == "data"
        assert (await place.run("cat c.txt")).stdout == b"gamma\n"
        for path in ("/etc/passwd", "/workspace/link", str(folder / "a.txt")):
            assert (await box.call("npm__read_text_file", {"path": path}, 60)).status == "error"
        wrong = await box.call("npm__read_text_file", {"path": 7}, 60)
        assert wrong.status == "error"
    assert sorted(os.listdir(folder)) == ["a.txt"]


@pytest.mark.anyio
async def test_the_server_that_does_everything(tmp_path: Path, folder: Path) -> None:
    """Made to try clients: structure, images, long work, and what it asks of the client."""
    async with server(tmp_path, folder, "server-everything", "stdio") as (box, _):
        names = {spec.name for spec in box.specs}
        assert {"npm__echo", "npm__get-sum", "npm__get-tiny-image"} <= names
        assert "Something to echo" in (await box.call("npm__echo", {"message": "Something to echo"}, 60)).text
        assert "42" in (await box.call("npm__get-sum", {"a": 40, "b": 2}, 60)).text
        assert "image/png" in (await box.call("npm__get-tiny-image", {}, 60)).text
        slow = {"duration": 1, "steps": 4}
        assert "completed" in (await box.call("npm__trigger-long-running-operation", slow, 60)).text
        late = await box.call("npm__trigger-long-running-operation", {"duration": 60, "steps": 4}, 1)
        assert late.status == "error"
        assert (await box.call("npm__get-sum", {"a": 40, "b": "x"}, 60)).status == "error"
        assert "again" in (await box.call("npm__echo", {"message": "again"}, 60)).text


CLIENT = """#!/bin/sh
port=${{1##*localhost:}}
echo "{{\\"mcpServers\\": {{\\"c\\": {{\\"url\\": \\"$1\\"}}}}}}" > servers.json
exec {python} -m stockade.cli run x --no-folder --mcp servers.json --net "localhost:${{port%%/*}}" \\
  --model scripted/script.jsonl --answers json </dev/null
"""
"""Stockade as the suite of the protocol's makers starts a client: with the address of their server."""


@pytest.mark.parametrize(
    ("scenario", "call"),
    [
        ("initialize", say("shell", command="true")),
        ("tools_call", say("c__add_numbers", a=5, b=3)),
        ("sse-retry", say("c__test_reconnection")),
    ],
)
def test_the_protocols_own_suite_finds_nothing_wrong_with_our_client(tmp_path: Path, scenario: str, call: str) -> None:
    node, modules = node_packages()
    client = tmp_path / "client"
    client.write_text(CLIENT.format(python=sys.executable))
    client.chmod(0o755)
    answers = [call, say("finish", answer="ok")]
    (tmp_path / "script.jsonl").write_text("".join(json.dumps({"content": one}) + "\n" for one in answers))
    suite = modules / "@modelcontextprotocol/conformance/dist/index.js"
    done = subprocess.run(
        [node, suite, "client", "--command", str(client), "--scenario", scenario],
        env={**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "OVERALL: PASSED" in told
    assert " 0 failed, 0 warnings" in told


def inspected(home: Path, folder: Path, *words: str) -> tuple[int, Any, str]:
    """(exit status, what it printed as JSON, stderr) of the inspector's command line with `stockade mcp`."""
    node, modules = node_packages()
    program = modules / ".bin/mcp-inspector"
    done = subprocess.run(
        [node, program, "--cli", sys.executable, "-m", "stockade.cli", "mcp", "--folder", folder, *words],
        env={**os.environ, "HOME": str(home), **{f"XDG_{name}_HOME": str(home / name) for name in ("STATE", "CACHE")}},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def test_the_inspector_lists_our_tools_and_finds_nothing_wrong_with_them(tmp_path: Path, folder: Path) -> None:
    status, found, words = inspected(tmp_path, folder, "--method", "tools/list", "--strict")
    assert status == 0, words
    assert {"run_bot", "sandbox_exec", "runs_list", "run_show", "run_diff", "run_apply"} <= {
        tool["name"] for tool in found["tools"]
    }
    assert all(tool["title"] and tool["outputSchema"] and len(tool["annotations"]) == 4 for tool in found["tools"])


def test_the_inspector_sees_the_record_as_resources(tmp_path: Path, folder: Path) -> None:
    assert [one["uri"] for one in inspected(tmp_path, folder, "--method", "resources/list")[1]["resources"]] == [
        "stockade://runs"
    ]
    templates = inspected(tmp_path, folder, "--method", "resources/templates/list")[1]["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == ["stockade://runs/{run}", "stockade://runs/{run}/diff"]
    read = inspected(tmp_path, folder, "--method", "resources/read", "--uri", "stockade://runs")[1]
    assert json.loads(read["contents"][0]["text"]) == []
    status, _, words = inspected(tmp_path, folder, "--method", "resources/read", "--uri", "stockade://runs/none")
    assert status != 0
    assert "there is no run 'none'" in words
    only = inspected(tmp_path, folder, "--only", "sandbox", "--method", "tools/list", "--strict")[1]["tools"]
    assert {one["name"].partition("_")[0] for one in only} == {"sandbox"}


def test_the_inspector_calls_our_tools(tmp_path: Path, folder: Path) -> None:
    call = ("--method", "tools/call", "--tool-name", "sandbox_exec", "--tool-arg")
    status, found, words = inspected(tmp_path, folder, *call, "command=cat a.txt; rm a.txt", "folder=.")
    assert status == 0, words
    assert found["structuredContent"]["stdout"] == "alpha\n"
    assert (folder / "a.txt").is_file()
    refused = inspected(tmp_path, folder, *call, "command=ls", "folder=/")[1]
    assert refused["isError"] is True
    assert "not among the folders" in refused["content"][0]["text"]
