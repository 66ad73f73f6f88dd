"""smolagents: its ToolCallingAgent with its OpenAI model class and a plain bash tool (it has none of its own).

Runs in a venv of its own (peers.py). Takes its server from OPENAI_BASE_URL.
"""

import os
import subprocess

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


def bash(command: str) -> str:
    """Run a bash command

    Args:
        command: The command
    """
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


model = OpenAIServerModel(model_id="fake", api_base=os.environ["OPENAI_BASE_URL"], api_key="none")
agent = ToolCallingAgent(tools=[tool(bash)], model=model, max_steps=1_000_000, verbosity_level=0)
agent.run("Do what you want.")
