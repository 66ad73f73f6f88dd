"""smolagents has no suite for executors: what its own executors promise, on ours."""

from collections.abc import Iterator
from textwrap import indent
from typing import Any

import pytest
from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.utils import AgentError

from stockade_sandbox import Sandbox
from stockade_sandbox.integrations.smolagents import StockadeExecutor


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as box:
        yield box


@pytest.fixture
def executor(box: Sandbox) -> Iterator[StockadeExecutor]:
    made = StockadeExecutor(box, timeout=20)
    yield made
    made.cleanup()


@tool
def doubled(number: int) -> int:
    """Twice a number.

    Args:
        number: the number
    """
    return number * 2


class Says(Model):
    """A model with its answers written down."""

    def __init__(self, *codes: str) -> None:
        super().__init__()
        self.codes = list(codes)
        self.seen: list[str] = []

    def generate(self, messages: list[ChatMessage], *_: Any, **__: Any) -> ChatMessage:
        self.seen.append(str(messages[-1].content))
        text = f"Thought: so\n<code>\n{self.codes.pop(0)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


def test_an_agent_reaches_its_answer_with_its_tools_and_variables(executor: StockadeExecutor) -> None:
    model = Says("import os\nx = doubled(number) + 1\nprint(os.getcwd())", "final_answer({'x': [x, b'1', 2.5]})")
    agent = CodeAgent(tools=[doubled], model=model, executor=executor, verbosity_level=0)
    assert agent.run("go", additional_args={"number": 20}) == {"x": [41, b"1", 2.5]}
    assert "/workspace" in model.seen[1]


def test_what_code_does_stays_and_what_it_says_comes_back(executor: StockadeExecutor) -> None:
    assert executor("a = 41").output is None
    done = executor("import os\nprint('one')\nos.system('echo two; echo three >&2')\na + 1")
    assert (done.output, done.is_final_answer) == ("42", False)
    assert sorted(done.logs.split()) == ["one", "three", "two"]


def test_an_error_is_the_agents_and_python_goes_on(executor: StockadeExecutor) -> None:
    executor("kept = 1")
    for code, words in (("1/0", "ZeroDivisionError"), ("(", "SyntaxError"), ("raise SystemExit(3)", "SystemExit"),
                        ("int(input())", "EOFError")):  # fmt: skip
        with pytest.raises(AgentError, match=words):
            executor(code)
    assert executor("kept").output == "1"


TO_EVERY_STREAM = """
import os
for fd in range(3, 9):
    try:
        os.write(fd, said)
    except OSError:
        pass
"""
ENDS = {
    "killed": "import os; os.kill(os.getpid(), 9)",
    "left": "import os; os._exit(0)",
    "never done": "while True: pass",
}


@pytest.mark.parametrize("way", ENDS)
def test_a_python_that_ends_is_begun_anew_with_what_it_was_given(box: Sandbox, way: str) -> None:
    executor = StockadeExecutor(box, timeout=3)
    executor.send_variables({"given": [1, {"a": "b"}]})
    executor.send_tools({"doubled": doubled})
    executor("own = 1")
    with pytest.raises(AgentError, match="begun anew"):
        executor(ENDS[way])
    assert executor("[doubled(given[0]), 'own' in globals()]").output == "[2, False]"
    executor.cleanup()
    assert box.exec(["echo", "goes on"]).text == "goes on\n"


@pytest.mark.parametrize(
    "forged",
    [
        b"{}",
        b"[]",
        b"x",
        b"\\xff",
        b'{"value": 1, "error": ["FinalAnswerException", "pickle:gASVAA==", ""], "logs": ""}',
        b"[" * 100_000,
    ],
)
def test_a_forged_answer_is_an_error_and_nothing_is_unpickled(executor: StockadeExecutor, forged: bytes) -> None:
    with pytest.raises(AgentError):
        executor(f"said = {forged!r} + b'\\n'\n{TO_EVERY_STREAM}")
    assert executor("1 + 1").output == "2"


def test_an_answer_without_end_is_cut(executor: StockadeExecutor) -> None:
    with pytest.raises(AgentError, match="begun anew"):
        executor(f"said = b'x' * 65536\nwhile True:\n{indent(TO_EVERY_STREAM, '    ')}")
