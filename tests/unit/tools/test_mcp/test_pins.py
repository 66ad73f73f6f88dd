"""A server that says something else than what was accepted is asked about."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.tools.mcp.config import ServerConfig
from stockade.tools.mcp.toolbox import Differences, Pins
from tests.unit.tools.test_mcp.support import SERVER, rules, toolbox

pytestmark = pytest.mark.anyio


def answering(word: bool, asked: list[str]) -> Callable[[str], Awaitable[bool]]:
    async def confirm(question: str) -> bool:
        asked.append(question)
        return word

    return confirm


def test_differences_and_acceptance(tmp_path: Path) -> None:
    pins = Pins(tmp_path / "state" / "pins.json")
    assert pins.compare("s", {"a": "1"}) == Differences(known=False)
    pins.accept("s", {"a": "1", "b": "2"})
    assert not pins.compare("s", {"a": "1"}).any
    found = pins.compare("s", {"a": "9", "b": "2", "c": "3"})
    assert (found.changed, found.new) == (("a",), ("c",))
    assert str(found) == "changed: a; new: c"
    pins.accept("other", {"a": "1"})
    assert not pins.compare("s", {"a": "1", "b": "2"}).any


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "servers": {}}', '{"version": 1, "servers": {"s": 1}}', "[" * 99_999]
)
def test_a_damaged_file_is_never_passed_over(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pins.json"
    path.write_text(text)
    for call in (lambda: Pins(path).compare("s", {}), lambda: Pins(path).accept("s", {})):
        with pytest.raises(UsageError, match="damaged"):
            call()
    assert path.read_text() == text


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be"):
        Pins(tmp_path / "file" / "pins.json").accept("s", {"a": "1"})


async def test_a_change_is_refused_when_nobody_says_yes(tmp_path: Path) -> None:
    notes: list[str] = []
    asked: list[str] = []
    before, after = changing(tmp_path)
    async with toolbox(tmp_path, before, note=notes.append):
        pass
    assert "is new: 1 tools" in notes[0]
    async with toolbox(tmp_path, before, note=notes.append):
        assert len(notes) == 1
    with pytest.raises(UsageError, match=r"changed: echo.*--mcp-accept s"):
        async with toolbox(tmp_path, after):
            pass
    with pytest.raises(UsageError, match="changed: echo"):
        async with toolbox(tmp_path, after, confirm=answering(False, asked)):
            pass
    async with toolbox(tmp_path, after, note=notes.append, required=False, confirm=None) as box:
        assert box.specs == ()
    assert "left out" in notes[-1]
    async with toolbox(tmp_path, after, confirm=answering(True, asked)) as box:
        assert box.specs
    assert len(asked) == 2
    async with toolbox(tmp_path, after) as box:
        assert box.specs


async def test_a_change_can_be_accepted_by_name(tmp_path: Path) -> None:
    before, after = changing(tmp_path)
    async with toolbox(tmp_path, before):
        pass
    async with toolbox(tmp_path, after, accepted=("s",)) as box:
        assert box.specs
    assert rules(tmp_path).pins.compare("x", {}).known is False


class _Same(ServerConfig):
    """A server that is reached as before and is another one: what a bad update looks like."""

    @property
    def identity(self) -> dict[str, object]:
        return {"name": self.name}


def changing(folder: Path) -> tuple[ServerConfig, ServerConfig]:
    def one(*modes: str) -> ServerConfig:
        return _Same(name="s", command=("/usr/bin/python3", "-c", SERVER, "only", *modes))

    return one(), one("change")
