"""The tool `python` under the conformance suite, in the real sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade.core.ports import Sandbox
from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.program import PythonTool
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.policy import FolderRule, Policy


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    folder, base = tmp_path / "work", tmp_path / "layers"
    folder.mkdir()
    (folder / "data.csv").write_text("a\nb\n")
    policy = Policy(folders=(FolderRule(host=str(folder), mode="overlay", inside="/workspace"),))
    async with BubblewrapSandbox(policy, prepare_layers(policy, base), base) as box:
        yield box


class TestPython(ToolboxConformance):
    @pytest.fixture
    def toolbox(self, sandbox: Sandbox) -> PythonTool:
        return PythonTool(sandbox)

    @pytest.fixture
    def good(self) -> Call:
        code = 'print(f"{len(open(\'data.csv\').readlines())} lines, \\"quoted\\"")'
        return "python", {"code": code}, '2 lines, "quoted"'


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("x = 1", "success", "printed nothing"),
        ("import sys; print(1); sys.exit(3)", "error", "exit status 3\n1"),
        ("1/0", "error", "ZeroDivisionError"),
        ("def f(:", "error", "SyntaxError"),
        ("if __name__ == '__main__': print('main')", "success", "main"),
        ("import os; os.kill(os.getpid(), 9)", "error", "exit status 137"),
        ("print('x' * 10_000_000)", "success", "bytes of the output were cut"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "success", "\\xff"),
    ],
)
async def test_what_came_of_a_program(sandbox: Sandbox, code: str, status: str, words: str) -> None:
    result = await PythonTool(sandbox).call("python", {"code": code}, 30)
    assert (result.status, words in result.text) == (status, True), result.text[:300]


@pytest.mark.anyio
async def test_a_program_without_end_is_ended(sandbox: Sandbox) -> None:
    result = await PythonTool(sandbox).call("python", {"code": "print(1, flush=True)\nwhile True: pass"}, 1.0)
    assert result.status == "error"
    assert "took longer than 1 s" in result.text
    assert (await sandbox.run("pgrep -c python3 || true")).stdout.strip() == b"0"
