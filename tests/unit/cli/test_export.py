"""Reports and recordings of runs: nothing in them is an escape or markup that a model wrote."""

import json
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from stockade.cli.export import report
from stockade.cli.ui.asciicast import cast
from stockade.core.events import RunEvent
from tests.unit.exports.sample import sample_run


async def sample() -> list[RunEvent]:
    return await sample_run(again=True)


def test_a_recording_plays_in_asciinema(tmp_path: Path) -> None:
    path = tmp_path / "run.cast"
    path.write_text("".join(f"{line}\n" for line in cast(anyio.run(sample))))
    played = subprocess.run(
        [sys.executable, "-m", "asciinema", "cat", str(path)], capture_output=True, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert played.returncode == 0, played.stderr
    assert b"Do it, please" in played.stdout
    assert b"\x1b]0;owned" not in played.stdout
    assert b"that too" in played.stdout


@pytest.mark.anyio
async def test_a_recording_has_its_times_in_order() -> None:
    header, *frames = [json.loads(line) for line in cast(await sample_run())]
    assert header["version"] == 2
    assert [frame[0] for frame in frames] == sorted(frame[0] for frame in frames)
    assert {frame[1] for frame in frames} == {"o"}


@pytest.mark.anyio
async def test_a_report_says_all_and_nothing_of_it_is_markup() -> None:
    text = report(await sample_run(), "diff --git a/x b/x\n+````\n")
    assert "| status | done (finish) |" in text
    assert "\x1b]0;owned" in text
    assert "\x1b" not in _outside_fences(text)
    assert "\u202e" not in _outside_fences(text)
    assert "> Look \\*first\\*." in text
    outside = _outside_fences(text)
    assert "<script>" not in outside
    assert "# not a heading" not in outside
    assert "`````diff" in text


def _outside_fences(text: str) -> str:
    """What a Markdown reader takes for markup (CommonMark: a fence ends with one at least as long)."""
    kept, fence = [], ""
    for line in text.split("\n"):
        found = re.match(r"(`{3,})", line)
        if not fence and found:
            fence = found[1]
        elif fence and re.fullmatch(rf"`{{{len(fence)},}}\s*", line):
            fence = ""
        elif not fence:
            kept.append(line)
    assert not fence
    return "\n".join(kept)
