"""What a server may do wrong is an error of its tool: the sandbox, the toolbox and the next call go on."""

from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from stockade.core.errors import SandboxFailed, UsageError
from stockade.tools.mcp.server import McpToolbox
from tests.unit.tools.test_mcp.support import rules, sandbox, scripted, toolbox

pytestmark = pytest.mark.anyio


async def said(box: McpToolbox, name: str, timeout_s: float = 15.0) -> tuple[str, str]:
    result = await box.call(f"test__{name}", {}, timeout_s)
    return result.status, result.text


async def still_there(box: McpToolbox) -> None:
    assert (await box.call("test__echo", {"text": "still there"}, 15.0)).text == "still there"


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("die", "error", "ended with status 3: ValueError: I am done"),
        ("endless", "error", "wrote more than"),
        ("garbage", "error", "wrote more than"),
        ("huge", "data", "characters more were cut"),
        ("fail", "error", "it did not work"),
        ("notify", "data", "after many notifications"),
        ("structured", "data", '"a": "aaa'),
        ("asks", "data", "asked"),
        ("half", "error", "no proper answer"),
        ("twice", "data", "once"),
    ],
)
async def test_each_ends_as_a_result(tmp_path: Path, name: str, status: str, words: str) -> None:
    async with toolbox(tmp_path) as box:
        result = await said(box, name)
        assert result[0] == status
        assert words in result[1]
        await still_there(box)


async def test_what_never_answers_runs_out_of_time(tmp_path: Path) -> None:
    async with toolbox(tmp_path) as box:
        for name, words in (
            ("wrong_id", "answered what it was not asked"),
            ("bad_json", "no JSON-RPC message"),
            ("deep", "no JSON-RPC message"),
            ("bigint", ""),
        ):
            status, text = await said(box, name, 0.7)
            assert status == "error", name
            assert words in text, name
        assert "did not answer within 0.5 s" in (await said(box, "hang", 0.5))[1]
        assert "did not answer within 0.5 s" in (await said(box, "hang", 0.5))[1]
        await still_there(box)  # started again after two in a row


async def test_kinds_of_content_become_text(tmp_path: Path) -> None:
    async with toolbox(tmp_path) as box:
        assert (await said(box, "kinds"))[1].splitlines() == [
            "words[31m",
            "[image image/png, 6 bytes, not shown]",
            "[audio audio/wav, 6 bytes, not shown]",
            "[resource file:///x/y.txt y.txt]",
            "[resource file:///z]",
            "inside z",
            "[resource file:///b: bytes, 6 bytes]",
        ]


async def test_one_that_the_bot_killed_is_started_again_but_not_for_ever(tmp_path: Path) -> None:
    async with sandbox(tmp_path) as place, McpToolbox((scripted(),), place, rules()) as box:
        for _ in range(4):
            await place.run("kill -9 -1")
            first = await box.call("test__echo", {"text": "x"}, 15)
            assert first.text == "x" or "ended with status 137" in first.text
            await still_there(box)
        await place.run("kill -9 -1")
        await box.call("test__echo", {"text": "x"}, 10)
        assert "started 5 times" in (await box.call("test__echo", {"text": "x"}, 10)).text
        assert (await place.run("echo here")).stdout == b"here\n"


async def test_a_cancelled_call_of_one_that_hangs_is_forgotten(tmp_path: Path) -> None:
    async with toolbox(tmp_path) as box:
        with anyio.move_on_after(0.3) as scope:
            await box.call("test__hang", {}, 15)
        assert scope.cancelled_caught


async def test_tools_that_are_none_or_pretend_are_left_out(tmp_path: Path) -> None:
    notes: list[str] = []
    async with toolbox(tmp_path, scripted("test", "squat"), note=notes.append) as box:
        names = {spec.name for spec in box.specs}
        assert not [name for name in names if "finish" in name or "hell" in name or "array" in name or "wide" in name]
        (evil,) = [spec for spec in box.specs if "evil" in spec.name]
        assert evil.description.startswith("[MCP server test] abc ddd")
        assert len(evil.description) < 1100
        assert evil.name.isascii()
        assert len(evil.name) <= 64
        assert "pattern" not in str(evil.parameters)
        (echo,) = [spec for spec in box.specs if spec.name == "test__echo"]
        assert echo.parameters["properties"]["text"]["description"] == "What[31m to say"
    assert len([note for note in notes if "is not offered" in note]) == 3


async def test_chatter_on_the_output_is_passed_over(tmp_path: Path) -> None:
    async with toolbox(tmp_path, scripted("test", "chatty")) as box:
        await still_there(box)


async def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ended with status 4: no module named nothing"):
        async with toolbox(tmp_path, scripted("test", "crash")):
            pass
    missing = scripted().model_copy(update={"command": ("/no/such/server",)})
    with pytest.raises(UsageError, match=r"/no/such/server: No such file"):
        async with toolbox(tmp_path, missing):
            pass


async def test_one_that_never_answers_at_its_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it did not start within 1 s"):
        async with toolbox(tmp_path, scripted("test", "mute"), start_s=1.0):
            pass


async def test_one_that_does_not_know_a_question_of_2026_is_asked_as_in_2025(tmp_path: Path) -> None:
    async with toolbox(tmp_path, scripted("test", "old")) as box:
        await still_there(box)


async def test_one_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    """It hangs, and what it is sent then does not fit into its pipe."""
    async with sandbox(tmp_path) as place, McpToolbox((scripted(),), place, rules()) as box:
        await said(box, "hang", 0.5)
        result = await box.call("test__echo", {"text": "x" * 2_000_000}, 0.5)
        assert "did not answer within 0.5 s" in result.text
        assert (await place.run("echo here")).stdout == b"here\n"
        assert (await box.call("test__echo", {"text": "x" * 150_000}, 15)).text == "x" * 150_000


async def test_one_that_is_not_required_is_left_out_with_a_note(tmp_path: Path) -> None:
    notes: list[str] = []
    servers = (scripted("bad", "crash"), scripted("good"))
    async with toolbox(tmp_path, *servers, note=notes.append, required=False) as box:
        assert {spec.name.split("__")[0] for spec in box.specs} == {"good"}
    assert "the MCP server bad was left out" in notes[0]


async def test_the_end_of_the_sandbox_is_no_result(tmp_path: Path) -> None:
    async with sandbox(tmp_path) as place, McpToolbox((scripted(),), place, rules()) as box:
        await still_there(box)
        chain = place._chain  # type: ignore[attr-defined]
        chain.kill()
        assert await anyio.to_thread.run_sync(chain.wait, 30)
        await box.call("test__echo", {"text": "x"}, 10)
        with pytest.raises(SandboxFailed):
            await box.call("test__echo", {"text": "x"}, 10)
