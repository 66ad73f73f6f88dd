"""The tools that come with Stockade, installed from this machine's package sources and used as a bot would."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stockade.core.ports import Sandbox
from stockade.tools.layers import Layers, prepare_tool
from stockade.tools.tool_files import read_tool, shipped
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.backends.building import SystemLayers
from stockade_sandbox.policy import FolderRule, Policy

pytestmark = pytest.mark.anyio

GLYPHS = {
    "E": ("#####", "#    ", "#### ", "#    ", "#####"),
    "F": ("#####", "#    ", "#### ", "#    ", "#    "),
    "H": ("#   #", "#   #", "#####", "#   #", "#   #"),
    "I": ("#", "#", "#", "#", "#"),
    "L": ("#    ", "#    ", "#    ", "#    ", "#####"),
    "T": ("#####", "  #  ", "  #  ", "  #  ", "  #  "),
    " ": ("   ",) * 5,
}
SCALE = 9


def picture(text: str) -> bytes:
    """A PGM image of `text` in plain capitals, black on white."""
    rows = ["  ".join(GLYPHS[letter][row] for letter in text) for row in range(5)]
    width = len(rows[0]) + 8
    canvas = [" " * width] * 4 + [f"    {row}    " for row in rows] + [" " * width] * 4
    pixels = b"".join(
        b"".join((b"\x00" if cell == "#" else b"\xff") * SCALE for cell in row) * SCALE for row in canvas
    )  # fmt: skip
    return b"P5 %d %d 255\n" % (width * SCALE, len(canvas) * SCALE) + pixels


@asynccontextmanager
async def with_tools(tmp_path: Path, *names: str) -> AsyncIterator[Sandbox]:
    """A run's sandbox with the tools in it, and no network; the folder is `folder`."""
    (tmp_path / "folder").mkdir(exist_ok=True)
    policy = Policy(folders=(FolderRule(host=str(tmp_path / "folder"), mode="overlay"),))
    made = Layers(tmp_path / "layers", SystemLayers())
    for name in names:
        policy = await prepare_tool(read_tool(shipped()[name]), policy, made)
    assert policy.network.mode == "none"
    async with BubblewrapSandbox(policy, prepare_layers(policy, tmp_path / "run"), tmp_path) as box:
        yield box


async def said(box: Sandbox, command: str) -> str:
    result = await box.run(command)
    assert result.exit_code == 0, result.output.decode()
    return result.stdout.decode().strip()


async def test_ripgrep_and_cscope(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.c").write_text("int twice(int x) { return x + x; }\n")
    (tmp_path / "folder/b.c").write_text("int twice(int);\nint main(void) { return twice(4); }\n")
    async with with_tools(tmp_path, "ripgrep", "cscope") as box:
        assert await said(box, "rg -n 'twice\\(4\\)'") == "b.c:2:int main(void) { return twice(4); }"
        await said(box, "cscope -Rbq")
        assert (await said(box, "cscope -dL -3 twice")).startswith("b.c main 2 ")
        assert (await said(box, "cscope -dL -1 twice")).startswith("a.c twice 1 ")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["a.c", "b.c"]


async def test_tesseract_reads_an_image(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/words.pgm").write_bytes(picture("TELL HIT FILE"))
    async with with_tools(tmp_path, "tesseract") as box:
        assert await said(box, "tesseract words.pgm - --psm 7 2>/dev/null") == "TELL HIT FILE"


async def test_ffmpeg_makes_and_describes_sound(tmp_path: Path) -> None:
    async with with_tools(tmp_path, "ffmpeg") as box:
        await said(box, "ffmpeg -nostdin -v error -y -f lavfi -i sine=frequency=440:duration=1 tone.ogg")
        shown = await said(box, "ffprobe -v error -show_format -show_streams tone.ogg")
    assert "codec_name=vorbis" in shown
    assert "duration=1.0" in shown
