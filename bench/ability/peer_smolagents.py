"""smolagents on one task: MAX_TURNS WORDS code|tools, in the current folder.

It has no shell tool: both kinds of agent get a plain one. The CodeAgent may import what it likes, so that its Python
can touch files too.
"""

import json
import os
import subprocess
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool
from smolagents.memory import ActionStep
from smolagents.utils import AgentGenerationError, AgentParsingError

COMMAND_TIMEOUT_S = 30


@tool  # type: ignore[untyped-decorator, unused-ignore]
def bash(command: str) -> str:
    """Run a bash command in the user's folder and return what it prints.

    Args:
        command: The command
    """
    try:
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S,
            stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"the command took longer than {COMMAND_TIMEOUT_S} s"
    return f"{done.stdout}{done.stderr}\nexit status {done.returncode}"


def main(max_turns: int, words: str, way: str) -> None:
    model = OpenAIServerModel(model_id="qwen", api_base=os.environ["OPENAI_BASE_URL"], api_key="none")
    settings = {"model": model, "tools": [bash], "max_steps": max_turns, "verbosity_level": 0}
    if way == "code":
        agent = CodeAgent(additional_authorized_imports=["*"], **settings)
    else:
        agent = ToolCallingAgent(**settings)
    answer, ended, detail = "", "error", ""
    try:
        answer = str(agent.run(words))
        ended = "done"
    except AgentGenerationError as error:
        detail = f"{type(error).__name__}: {error}"[:400]
    steps = [step for step in agent.memory.steps if isinstance(step, ActionStep)]
    malformed = sum(isinstance(step.error, AgentParsingError) for step in steps)
    if ended == "done" and not any(step.is_final_answer for step in steps):
        ended = "turns"
    print(json.dumps({"ended": ended, "malformed": malformed, "answer": answer[:2000], "detail": detail}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
