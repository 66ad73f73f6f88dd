"""Lists of servers, hostile and plain."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.errors import UsageError
from stockade.core.tool_plan import ToolPlan, ToolRequest
from stockade.tools.mcp.config import parse_config, read_config
from stockade.tools.mcp.file import mcp_file
from stockade_sandbox.policy import Policy


def one(entry: Any, variables: dict[str, str] | None = None, name: str = "s") -> Any:
    (found,) = parse_config({"mcpServers": {name: entry}}, variables or {}, {})
    return found


def test_a_program_with_its_variables_and_folder() -> None:
    found = one(
        {"command": "srv", "args": ["-x", "a b"], "env": {"TOKEN": "${T}", "B": "${U:-no}"}, "cwd": "/d"}, {"T": "t=1"}
    )
    assert found.argv == ("env", "-C", "/d", "TOKEN=t=1", "B=no", "srv", "-x", "a b")
    assert one({"command": "srv"}).argv == ("srv",)


def test_an_address_with_headers() -> None:
    found = one(
        {"type": "http", "url": "https://h.test/${P}", "headers": {"Authorization": "Bearer ${K}"}},
        {"P": "mcp", "K": "k"},
    )
    assert (found.url, found.headers) == ("https://h.test/mcp", {"Authorization": "Bearer k"})


def test_a_secret_goes_into_headers_and_nowhere_else() -> None:
    far: dict[str, Any] = {"url": "https://h.test/mcp", "headers": {"Authorization": "Bearer ${K}"}}
    (found,) = parse_config({"mcpServers": {"s": far}}, {}, {"K": "k"})
    assert found.headers == {"Authorization": "Bearer k"}
    with pytest.raises(UsageError, match="wants the variable K") as refused:
        parse_config({"mcpServers": {"s": far}}, {}, {})
    assert refused.value.hint == "give it with --redact K"
    for entry in (
        {"command": "x", "args": ["${K}"]},
        {"command": "x", "env": {"A": "${K}"}},
        {"url": "https://h/${K}"},
    ):
        with pytest.raises(UsageError, match="wants the variable K"):
            parse_config({"mcpServers": {"s": entry}}, {}, {"K": "k"})


def test_one_that_is_disabled_is_none() -> None:
    assert parse_config({"mcpServers": {"s": {"command": "x", "disabled": True}}}, {}, {}) == ()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (7, "object"),
        ({}, "command is missing"),
        ({"command": ["a"]}, "command is missing"),
        ({"command": "a", "args": "b"}, "list of strings"),
        ({"command": "a", "args": [1]}, "list of strings"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "a", "env": {"A B": "x"}}, "no name of a variable"),
        ({"command": "a", "env": {"A": 1}}, "object of strings"),
        ({"command": "a=b", "env": {"A": "1"}}, "holds '='"),
        ({"command": "a", "env": {"A": "${NOT_GIVEN}"}}, "wants the variable NOT_GIVEN"),
        ({"command": "a", "lend": "/x"}, "lend"),
        ({"type": "sse", "url": "http://x/"}, "old HTTP\\+SSE"),
        ({"type": "carrier pigeon"}, "no transport"),
        ({"url": "file:///etc/passwd"}, "no address"),
        ({"url": "http://user@h/"}, "no address"),
        ({"url": "http://h:99999/"}, "no address"),
        ({"url": "http://[::1/"}, "no address"),
        ({"url": "http://h/\n"}, "no address"),
        ({"url": "http://h/", "headers": {"A": "b\r\nC: d"}}, "header"),
    ],
)
def test_what_it_cannot_mean_is_said(entry: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        one(entry)


@pytest.mark.parametrize("name", ["", " ", "x" * 65, "a\nb", "\x1b[31m"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        one({"command": "x"}, name=name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no object mcpServers"),
        (b'{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "stands twice"),
        (b" " * 1_000_001, "larger than"),
    ],
)
def test_files_that_are_no_list(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=words):
        read_config(path, {}, {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path / "nothing", {}, {})


@pytest.mark.parametrize("lend", ["x" * 300, "/" + "y/" * 3000, "loop/x", "~nosuch/x"])
def test_a_name_that_no_folder_can_have_is_said_of_the_server_that_wants_it(lend: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (file := tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"s": {"command": "x", "lend": [lend]}}}))
    with pytest.raises(UsageError, match="the MCP server s: lend: there is no folder "):
        mcp_file(ToolRequest(file, ToolPlan(policy=Policy())))
    file.write_text(json.dumps({"mcpServers": {"s": {"command": f"/{'y/' * 3000}bin/x"}}}))
    assert not mcp_file(ToolRequest(file, ToolPlan(policy=Policy()))).policy.lent


def test_too_many() -> None:
    with pytest.raises(UsageError, match="17 servers"):
        parse_config({"mcpServers": {str(n): {"command": "x"} for n in range(17)}}, {}, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["command", "args", "env", "url", "type", "headers", "cwd", "lend", "x"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_anything_is_a_list_or_a_usage_error(entry: Any) -> None:
    said = ""
    try:
        parse_config({"mcpServers": {"s": entry}}, {}, {})
    except UsageError as error:
        said = error.message
    assert "\n" not in said
