from pathlib import Path

import anyio
import pytest

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.scripted import ScriptedModel
from stockade.testing.conformance.model import Heard, question

pytestmark = pytest.mark.anyio


def script(tmp_path: Path, *lines: str) -> ScriptedModel:
    (tmp_path / "s.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return ScriptedModel(tmp_path / "s.jsonl")


async def test_lines_in_order(tmp_path: Path) -> None:
    call = '{"tool_calls": [{"function": {"name": "shell", "arguments": "{\\"command\\": \\"ls\\"}"}}]}'
    heard = Heard()
    async with script(tmp_path, '{"content": "one two\u2028 three\\n"}', "", call) as model:
        first = await model.ask(question(), heard)
        second = await model.ask(question())
        with pytest.raises(ModelUnavailable, match="no answer left after 2"):
            await model.ask(question())
    assert first.content == "".join(heard.pieces) == "one two\u2028 three\n"
    assert len(heard.pieces) > 2
    assert (second.content, second.finish_reason) == ("", "tool_calls")
    assert second.tool_calls[0]["function"] == {"name": "shell", "arguments": '{"command": "ls"}'}
    assert second.usage.cached_tokens == second.usage.prompt_tokens > 0


async def test_a_delay_can_be_cancelled(tmp_path: Path) -> None:
    async with script(tmp_path, '{"content": "slow words", "delay_s": 600}') as model:
        with anyio.move_on_after(0.01) as scope:
            await model.ask(question())
        assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "is not JSON"),
        ("[1]", "is not an assistant message"),
        ('{"text": "x"}', "is not an assistant message"),
        ('{"content": "x", "extra": 1}', "unknown field 'extra'"),
        ('{"content": 3}', "content is not a text"),
        ('{"content": "x", "role": "user"}', "its role is 'user'"),
        ('{"tool_calls": [{"name": "x"}]}', "tool_calls is not a list"),
        ('{"content": "x", "delay_s": -1}', "delay_s is not"),
        ('{"content": "x", "delay_s": NaN}', "delay_s is not"),
        ("[" * 100_000, "is not JSON"),
    ],
)
async def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        async with script(tmp_path, '{"content": "fine"}', line):
            pass
    assert caught.value.message.startswith("line 2 of ")


async def test_no_such_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the script"):
        async with ScriptedModel(tmp_path / "none"):
            pass
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        async with ScriptedModel(tmp_path / "binary"):
            pass


@pytest.mark.parametrize(
    "last",
    [
        '{"content": "{\\"action\\": {\\"tool\\": \\"finish\\", \\"answer\\": \\"42\\"}}"}',
        '{"content": "Done.\\n```finish\\n42\\n```"}',
        '{"tool_calls": [{"function": {"name": "finish", "arguments": "{\\"answer\\": \\"42\\"}"}}]}',
    ],
)
async def test_a_finish_at_the_end_is_said_again(tmp_path: Path, last: str) -> None:
    async with script(tmp_path, '{"content": "first"}', last) as model:
        answers = [await model.ask(question()) for _ in range(4)]
    assert answers[0].content == "first"
    assert all((a.content, a.tool_calls) == (answers[1].content, answers[1].tool_calls) for a in answers[1:])


def test_a_window_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"content": "a", "context_window": 2048}\n{"content": "b"}\n')

    async def window() -> int | None:
        async with ScriptedModel(path) as model:
            return model.info.context_window

    assert anyio.run(window) == 2048
    path.write_text('{"content": "a", "context_window": true}\n')
    with pytest.raises(UsageError, match="context_window"):
        anyio.run(window)
