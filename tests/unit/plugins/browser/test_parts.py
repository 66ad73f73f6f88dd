"""The pieces of the browser without one: trees as they may come, messages as they may come, addresses."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from stockade.plugins.browser import devtools
from stockade.plugins.browser.devtools import BrowserError, DevTools
from stockade.plugins.browser.snapshot import MAX_CHARS, snapshot
from stockade.plugins.browser.toolbox import web_address


def node(
    number: int, role: str, name: str = "", *children: int, parent: int | None = None, **more: Any
) -> dict[str, Any]:
    found = {"nodeId": str(number), "role": {"value": role}, "name": {"value": name}, "backendDOMNodeId": 100 + number,
             "childIds": [str(child) for child in children], **more}  # fmt: skip
    return found if parent is None else {**found, "parentId": str(parent)}


def test_a_tree_is_lines_with_names() -> None:
    tree = [
        node(1, "RootWebArea", "Page", 2, 3, 5, 8),
        node(2, "heading", "News", parent=1, properties=[{"name": "level", "value": {"value": 2}}]),
        node(3, "generic", "", 4, parent=1, ignored=True),
        node(4, "link", "More", parent=3),
        node(5, "list", "", 6, parent=1),
        node(6, "listitem", "", 7, parent=5),
        node(7, "StaticText", "one", parent=6),
        node(8, "StaticText", "two\n three", parent=1),
    ]
    found = snapshot([tree])
    assert found.lines == ['- heading 2 "News"', '- link "More" [e1]', "- text: one two three"]
    assert found.refs == {"e1": 104}


@pytest.mark.parametrize(
    "tree",
    [
        [],
        [None],
        [{}],
        [{"nodeId": 1, "childIds": "x", "role": 7, "name": None, "properties": None}],
        [node(1, "button", "\0[e9]", 1, parent=1), node(2, "button", "x", 1, 2)],
        [{"nodeId": "1", "childIds": [{"a": 1}], "role": {"value": ["button"]}, "properties": [7, {"name": {}}]}],
    ],
)
def test_a_hostile_tree_breaks_nothing(tree: list[Any]) -> None:
    found = snapshot([tree])
    assert isinstance(found.shown(), str)
    assert "\0" not in found.shown()


def test_a_deep_and_a_wide_tree_are_bounded() -> None:
    deep = [node(n, "group", f"g{n}", n + 1, parent=n - 1) for n in range(1, 30_000)]
    assert len(snapshot([deep]).shown()) < MAX_CHARS + 200
    wide = [
        node(0, "RootWebArea", "", *range(1, 5000)),
        *(node(n, "button", f"b{n}", parent=0) for n in range(1, 5000)),
    ]
    found = snapshot([wide])
    assert len(found.refs) == 4999
    assert found.shown(find="b4999") == '- button "b4999" [e4999]'
    assert "lines more" in found.shown()


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        (" http://a.test/x?y#z ", "http://a.test/x?y#z"),
        ("example.org", "https://example.org"),
        ("localhost:8080/x", "http://localhost:8080/x"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("[::1]:80/", "http://[::1]:80/"),
        ("localhost.example.org", "https://localhost.example.org"),
        ("127.0.0.1.example.org", "https://127.0.0.1.example.org"),
        ("/workspace/a b.html".replace(" ", "%20"), "file:///workspace/a%2520b.html"),
        ("file:///workspace/x.html", "file:///workspace/x.html"),
        ("HTTPS://A.test", "HTTPS://A.test"),
    ],
)
def test_addresses(typed: str, url: str) -> None:
    assert web_address(typed) == url


@pytest.mark.parametrize(
    "typed", ["", "a b", "javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "file://host/etc/passwd", "file:x", "ftp://a",
              "view-source:http://a", "http://", "http://[", "http://a:99999999/", "x\x00y", "\u202eevil", "x" * 2001]
)  # fmt: skip
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        web_address(typed)


class Pipes:
    """A program whose words are a test's. `answer` makes the reply to each command."""

    status: int | None = None

    def __init__(self, answer: Callable[[dict[str, Any]], bytes]) -> None:
        self._answer = answer
        self._give, self._take = anyio.create_memory_object_stream[bytes](100)

    async def send(self, item: bytes) -> None:
        await self._give.send(self._answer(json.loads(item[:-1])))

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._take.receive()

    async def send_eof(self) -> None:
        self._give.close()

    def close(self) -> None:
        self._give.close()
        self._take.close()

    async def exit_reason(self) -> str:
        return ""


async def asked(answer: Callable[[dict[str, Any]], bytes], calls: int = 1, limit_s: float = 5) -> list[dict[str, Any]]:
    heard: list[tuple[str, dict[str, Any], str]] = []
    pipes = Pipes(answer)
    tools = DevTools(pipes, lambda *event: heard.append(event))
    results = []
    async with anyio.create_task_group() as group:
        group.start_soon(tools.listen)
        try:
            results = [await tools.call("X.y", "s", limit_s) for _ in range(calls)]
        finally:
            group.cancel_scope.cancel()
            pipes.close()
    return results


def reply(message: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"id": message["id"], **more}).encode() + b"\0"


@pytest.mark.anyio
async def test_messages_in_pieces_and_nonsense_between() -> None:
    def answer(message: dict[str, Any]) -> bytes:
        assert message["sessionId"] == "s"
        junk = b'\xff\0[1]\0{"id": "x"}\0{"id": 999}\0{"method": 7}\0' + b"[" * 100_000 + b"\0"
        return junk + reply(message, result={"ok": 1})

    assert await asked(answer, 3) == [{"ok": 1}] * 3


@pytest.mark.anyio
async def test_errors_are_told_and_silence_ends() -> None:
    with pytest.raises(BaseExceptionGroup) as failed:
        await asked(lambda message: reply(message, error={"message": "No node\n" + "x" * 9999}))
    assert failed.group_contains(BrowserError, match="No node")
    with pytest.raises(BaseExceptionGroup) as silent:
        await asked(lambda _: b"\0", limit_s=0.05)
    assert silent.group_contains(BrowserError, match="did not answer")


@pytest.mark.anyio
async def test_a_message_without_an_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devtools, "MAX_MESSAGE_BYTES", 1000)
    with pytest.raises(BaseExceptionGroup) as caught:
        await asked(lambda _: b"x" * 2000)
    assert caught.group_contains(BrowserError, match="too large")
