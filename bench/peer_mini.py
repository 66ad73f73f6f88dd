"""mini-swe-agent as its own command line sets it up: its default agent, its prompts, its model class, a local shell.

Runs in a venv of its own (peers.py). Takes its server from OPENAI_BASE_URL.
"""

import os

from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

words = get_config_from_spec("mini.yaml")["agent"]
model = LitellmModel(
    model_name="openai/fake",
    model_kwargs={"api_base": os.environ["OPENAI_BASE_URL"], "api_key": "none"},
    cost_tracking="ignore_errors",
)
agent = DefaultAgent(
    model,
    LocalEnvironment(),
    system_template=words["system_template"],
    instance_template=words["instance_template"],
    cost_limit=0,
)
agent.run("Do what you want.")
