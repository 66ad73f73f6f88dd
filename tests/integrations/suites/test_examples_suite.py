"""The examples of docs/integrations as they stand there, a scripted model in place of MODEL, with the real packages."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import ShellActionRequest, ShellCallData
from agents.testing import ScriptedModel, assistant_message
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from openai.types.responses import ResponseFunctionShellToolCall
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from smolagents import Model
from smolagents.models import ChatMessage, MessageRole

from stockade_sandbox import Sandbox
from stockade_sandbox.errors import UsageError
from stockade_sandbox.integrations.inspect_ai import StockadeConfig
from stockade_sandbox.integrations.openai_agents import StockadeShell
from stockade_sandbox.keeping import kept

DOCS = Path(__file__).parents[3] / "docs/integrations"
COUNT = "wc -l < data.csv > count.txt; cat count.txt"


@pytest.fixture(autouse=True)
def _repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/data.csv").write_text("a\nb\n\n")


def blocks(name: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", (DOCS / f"{name}.md").read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found


def run(name: str, model: Any, capsys: pytest.CaptureFixture[str]) -> str:
    for code in blocks(name, "python"):
        assert len(code.splitlines()) <= 20
        exec(compile(code, name, "exec"), {"MODEL": model, "__name__": "__main__"})
    return capsys.readouterr().out


def test_openai_agents(capsys: pytest.CaptureFixture[str]) -> None:
    call = ResponseFunctionShellToolCall.model_validate({
        "id": "s1", "call_id": "c1", "type": "shell_call", "status": "completed",
        "action": {"commands": [COUNT, "echo no >&2; exit 3"], "timeout_ms": 20000, "max_output_length": 1000},
    })  # fmt: skip
    model = ScriptedModel([[call], [assistant_message("done: 3")]])
    shown = run("openai_agents", model, capsys)
    assert "done: 3" in shown
    assert "+3" in shown
    assert Path("repo/count.txt").read_text() == "3\n"
    assert "'stderr': 'no\\n'" in str(model.calls[-1].input)


async def test_openai_agents_times_out_and_bounds_what_is_said() -> None:
    def request(*commands: str, **more: Any) -> Any:
        action = ShellActionRequest(commands=list(commands), **more)
        return SimpleNamespace(data=ShellCallData(call_id="c", action=action))

    with Sandbox() as box:
        shell = StockadeShell(box, timeout=20)
        late = await shell(request("echo part; sleep 60", "echo never", timeout_ms=500))
        assert [(one.stdout, one.status, one.exit_code) for one in late.output] == [("part\n", "timeout", None)]
        said = await shell(request("yes | head -c 5000", "exit 4", max_output_length=100))
        assert (len(said.output[0].stdout), said.max_output_length, said.output[1].exit_code) == (100, 100, 4)


def test_inspect_ai(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECT_DISPLAY", "plain")
    Path("policy.toml").write_text(blocks("inspect_ai", "toml")[0])
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"cmd": f"cd /workspace && {COUNT}"}),
        ModelOutput.from_content("mockllm/model", "it has 3 lines"),
    ]
    for output in outputs:
        output.usage = ModelUsage(total_tokens=1)  # or it fetches a tokenizer, to count them
    shown = run("inspect_ai", get_model("mockllm/model", custom_outputs=outputs), capsys)
    assert "success 1.0" in shown
    assert os.listdir("repo") == ["data.csv"]


def test_inspect_ais_policy_is_refused_in_one_line() -> None:
    for text in ("[policy", "[policy]\nnonsense = 1", "[policy.limits]\nprocesses = -1", "nonsense = 1"):
        Path("p.toml").write_text(text)
        with pytest.raises(UsageError) as raised:
            StockadeConfig.of_file(Path("p.toml"))
        assert "\n" not in str(raised.value)
    Path("p.toml").write_text('net = ["a.b"]\n[policy]')
    with pytest.raises(UsageError, match="net stands beside"):
        StockadeConfig.of_file(Path("p.toml")).made()
    assert hash(StockadeConfig.of_file(Path("p.toml")))


def test_pydantic_ai(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(messages: list[Any], info: Any) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("shell", {"command": COUNT})])
        return ModelResponse(parts=[TextPart(f"lines: {messages[-1].parts[-1].content}")])

    assert run("pydantic_ai", FunctionModel(answer), capsys) == "lines: 3\n\n"
    assert os.listdir("repo") == ["data.csv"]
    assert not kept()


def test_deepagents(capsys: pytest.CaptureFixture[str]) -> None:
    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    call = {"name": "execute", "args": {"command": f"cd /workspace && {COUNT}"}, "id": "1"}
    shown = run("deepagents", Scripted(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("three")])), capsys)
    assert "three" in shown
    assert Path("repo/count.txt").read_text() == "3\n"


def test_smolagents(capsys: pytest.CaptureFixture[str]) -> None:
    codes = ["lines = open('data.csv').readlines()\nopen('seen', 'w').write('x')", "final_answer(len(lines))",
             "final_answer(sum(line == '\\n' for line in lines))"]  # fmt: skip

    class Says(Model):
        def generate(self, messages: Any, *_: Any, **__: Any) -> ChatMessage:
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: so\n<code>\n{codes.pop(0)}\n</code>")

    shown = run("smolagents", Says(), capsys)
    assert "\n3\n" in f"\n{shown}"
    assert "\n1\n" in shown
    assert "+++ b/seen" in shown
    assert os.listdir("repo") == ["data.csv"]


def test_mini_swe_agent(tmp_path: Path) -> None:
    """Its own command, as a program of its own."""
    Path("stockade.yaml").write_text(blocks("mini_swe_agent", "yaml")[0])
    Path(".git").mkdir()
    actions = ["wc -l < data.csv > count.txt; cat count.txt; ls /root/.ssh",
               "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat count.txt"]  # fmt: skip
    kind = "minisweagent.models.test_models.DeterministicModel"
    outputs = [{"role": "assistant", "content": "so", "extra": {"actions": [{"command": action}], "cost": 0.0}}
               for action in actions]  # fmt: skip
    Path("model.yaml").write_text(
        json.dumps({"model": {"model_class": kind, "model_name": "made", "outputs": outputs}})
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    more = {"MODEL": "model.yaml", "PATH": path, "MSWEA_CONFIGURED": "true", "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path)}
    command = blocks("mini_swe_agent", "sh")[0]
    done = subprocess.run(
        ["sh", "-c", command], env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path("repo/count.txt").read_text() == "3\n"
    assert "No such file" in done.stdout or "cannot access" in done.stdout or "Permission denied" in done.stdout
