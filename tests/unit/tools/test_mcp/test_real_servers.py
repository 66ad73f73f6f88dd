"""Servers that others wrote (PyPI), running inside the sandbox: what a person would put into `.mcp.json`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stockade.core.ports import Sandbox, Toolbox
from stockade.core.tool_plan import ToolContext, ToolPlan, ToolRequest
from stockade.tools.mcp.file import mcp_file
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.policy import FolderRule, Limits, Network, Policy
from tests.support.hostile_site import Site, hostile_site
from tests.support.site import to_loopback

pytestmark = pytest.mark.anyio
PYTHON = str(Path(sys.prefix) / "bin" / "python")


def planned(folder: Path, servers: dict[str, Any], policy: Policy) -> ToolPlan:
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return mcp_file(ToolRequest(file, ToolPlan(policy=policy)))


def toolbox(plan: ToolPlan, place: Sandbox, folder: Path) -> Toolbox:
    (found,) = plan.toolboxes(ToolContext(place, plan.policy, "writing", folder / "state"))
    return found


async def called(box: Toolbox, name: str, **arguments: Any) -> str:
    result = await box.call(name, arguments, 60)
    assert result.status == "data", result.text
    return result.text


def repository(folder: Path) -> Path:
    made = folder / "repo"
    made.mkdir()
    (made / "a.txt").write_text("alpha\n")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=made, check=True)
    subprocess.run(["git", "config", "user.email", "a@b.c"], cwd=made, check=True)
    subprocess.run(["git", "config", "user.name", "A"], cwd=made, check=True)
    subprocess.run(["git", "add", "."], cwd=made, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "the first one"], cwd=made, check=True)
    return made


def log(repo: Path) -> str:
    return subprocess.run(["git", "log"], cwd=repo, capture_output=True, text=True, check=True).stdout


async def test_time_and_git_together(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    servers = {
        "time": {"command": PYTHON, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
        "git": {"command": PYTHON, "args": ["-m", "mcp_server_git", "--repository", "/workspace"]},
    }
    policy = Policy(folders=(FolderRule(host=str(repo), mode="overlay"),), limits=Limits(memory_bytes=0))
    plan = planned(tmp_path, servers, policy)
    assert Path(sys.prefix) in [Path(rule.host) for rule in plan.policy.lent]
    base = tmp_path / "run"
    async with BubblewrapSandbox(plan.policy, prepare_layers(plan.policy, base, None), base) as place:
        async with toolbox(plan, place, tmp_path) as box:
            assert {"time__get_current_time", "git__git_log", "git__git_commit"} <= {spec.name for spec in box.specs}
            assert '"timezone": "Europe/Rome"' in await called(box, "time__get_current_time", timezone="Europe/Rome")
            assert "the first one" in await called(box, "git__git_log", repo_path="/workspace")
            await place.run("echo beta > b.txt")
            await called(box, "git__git_add", repo_path="/workspace", files=["b.txt"])
            await called(box, "git__git_commit", repo_path="/workspace", message="from inside")
            assert "from inside" in (await place.run("git log --oneline")).stdout.decode()
            refused = await box.call("git__git_log", {"repo_path": "/etc"}, 60)
            assert refused.status == "error"
    assert "from inside" not in log(repo)


async def test_fetch_reaches_what_the_policy_allows_and_nothing_else(tmp_path: Path) -> None:
    arguments = ["-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"]
    servers = {"fetch": {"command": PYTHON, "args": arguments}}
    with hostile_site() as site:
        network = Network(mode="allow", hosts=(f"good.test:{site.port}",))
        plan = planned(tmp_path, servers, Policy(network=network, limits=Limits(memory_bytes=0)))
        base = tmp_path / "run"
        layers = prepare_layers(plan.policy, base, None)
        async with BubblewrapSandbox(plan.policy, layers, base, egress=to_loopback) as place:
            heard: list[Any] = []
            place.on_network = heard.append
            async with toolbox(plan, place, tmp_path) as box:
                text = await called(box, "fetch__fetch", url=_url(site, "/tea"), raw=True)
                assert "kettle" in text
                refused = await box.call(
                    "fetch__fetch", {"url": _url(site, "/tea").replace("good", "bad"), "raw": True}, 60
                )
                assert refused.status == "error"
        assert {event.host for event in heard} >= {"good.test", "bad.test"}


def _url(site: Site, path: str) -> str:
    return f"http://good.test:{site.port}{path}"
