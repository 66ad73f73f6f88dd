"""Host programs: what the bot says is data, whatever it looks like."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.core.errors import UsageError
from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.command_file import host_tool
from stockade.tools.program import MAX_OUTPUT_BYTES, ExternalTool
from stockade.tools.tool_files import CommandTool, Parameter

SHOW = "import json, os, sys; print(json.dumps(sys.argv[1:])); print(sys.stdin.read(), end='')"


def tool(*command: str, **more: Any) -> CommandTool:
    return CommandTool(name="show", external=True, command=command, **more)


def shows(*words: str, **more: Any) -> ExternalTool:
    return ExternalTool(tool(sys.executable, "-c", SHOW, *words, **more), os.environ)


class TestExternal(ToolboxConformance):
    @pytest.fixture
    def toolbox(self) -> ExternalTool:
        return shows("--title={title}", "--", "{text}", parameters={"title": Parameter(), "text": Parameter()})

    @pytest.fixture
    def good(self) -> Call:
        return "show", {"title": "a b", "text": "-x; $(id)"}, '["--title=a b", "--", "-x; $(id)"]'


pytestmark = pytest.mark.anyio


async def said(box: ExternalTool, **arguments: Any) -> tuple[str, str]:
    result = await box.call("show", arguments, 30)
    return result.status, result.text


async def test_one_value_is_one_word() -> None:
    box = shows("{text}", parameters={"text": Parameter()})
    for value in ("a b", "$(touch /tmp/owned)", "`id`", "a;b", "{text}", "*", "~", "a\nb", "'\""):
        status, text = await said(box, text=value)
        assert status == "data"
        assert text == json.dumps([value])


async def test_a_value_is_never_an_option() -> None:
    box = shows("{path}", parameters={"path": Parameter()})
    assert await said(box, path="--output=/etc/passwd") == ("error", "the argument path must not begin with '-'")
    after = shows("--", "{path}", parameters={"path": Parameter()})
    assert (await said(after, path="--output=x"))[0] == "data"


async def test_wrong_arguments_are_named() -> None:
    box = shows("{n}", "{kind}", parameters={"n": Parameter(type="integer"), "kind": Parameter(choices=("a", "b"))})
    assert "n: Field required" in (await said(box, kind="a"))[1]
    assert "n: Input should be a valid integer" in (await said(box, n="1", kind="a"))[1]
    assert "n: Input should be a valid integer" in (await said(box, n=True, kind="a"))[1]
    assert "kind: Input should be 'a' or 'b'" in (await said(box, n=1, kind="c"))[1]
    assert "x: Extra inputs are not permitted" in (await said(box, n=1, kind="a", x=1))[1]
    assert "cannot be written" in (await said(box, n=10**5000, kind="a"))[1]


async def test_choices_are_of_the_parameters_type() -> None:
    """They were texts whatever the type, so no number was ever one of them."""
    box = shows("{n}", parameters={"n": Parameter(type="integer", choices=("1", "2"))})
    assert box.spec.properties["n"] == {"type": "integer", "enum": [1, 2]}
    assert await said(box, n=2) == ("data", '["2"]')
    assert "n: Input should be 1 or 2" in (await said(box, n=3))[1]


async def test_what_is_not_given_is_left_out() -> None:
    box = shows("--title={title}", "end", parameters={"title": Parameter(required=False)})
    assert await said(box) == ("data", '["end"]')


async def test_standard_input_is_given() -> None:
    box = shows(stdin="{text}\n", parameters={"text": Parameter()})
    assert await said(box, text="$HOME") == ("data", "[]\n$HOME")


async def test_only_named_variables_are_passed() -> None:
    code = "import os; print(os.environ.get('SECRET_TOKEN'), os.environ.get('A'), os.environ.get('OTHER_KEY'))"
    environ = {**os.environ, "SECRET_TOKEN": "s", "OTHER_KEY": "o"}
    given = tool(sys.executable, "-c", code, environment={"A": "$(id) \"'"}, pass_environment=("SECRET_TOKEN",))
    assert (await said(ExternalTool(given, environ)))[1] == "s $(id) \"' None"


async def test_failures_are_results() -> None:
    status, text = await said(ExternalTool(tool("false"), os.environ))
    assert (status, text) == ("error", "it ended with status 1")
    status, text = await said(ExternalTool(tool("/no/such/program"), os.environ))
    assert status == "error"
    assert "No such file" in text


def running(pid_file: Path) -> bool:
    return Path(f"/proc/{pid_file.read_text().strip()}/cmdline").exists()


async def test_it_is_ended_with_all_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    slow = tool("bash", "-c", f"sleep 1000 & echo $! > {pid_file}; wait", timeout_s=1.0)
    status, text = await said(ExternalTool(slow, os.environ))
    assert status == "error"
    assert "longer than 1 s" in text
    with anyio.fail_after(10):
        while running(pid_file):  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_what_it_leaves_running_does_not_hold_up_its_result() -> None:
    status, text = await said(ExternalTool(tool("bash", "-c", "sleep 1000 & echo ready", timeout_s=300), os.environ))
    assert (status, text) == ("data", "ready")


async def test_output_is_bounded() -> None:
    flood = tool(sys.executable, "-c", f"print('x' * {MAX_OUTPUT_BYTES * 3})")
    status, text = await said(ExternalTool(flood, os.environ))
    assert status == "data"
    assert len(text) < MAX_OUTPUT_BYTES + 100
    assert text.endswith("more bytes]")


async def test_it_is_only_had_by_name() -> None:
    with pytest.raises(UsageError, match="--allow-external show") as caught:
        host_tool(tool("ls"), ("other",))
    assert "outside of the sandbox" in caught.value.message
    with pytest.raises(UsageError, match="NOT_SET_HERE, NOR_THIS"):
        host_tool(tool("ls", pass_environment=("NOT_SET_HERE", "NOR_THIS")), ("show",), environ={})
