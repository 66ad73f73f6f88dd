"""mini-swe-agent on many tasks at once, as its own batch runner does it: its default agent for each, in the threads of
one process. That runner knows SWE-bench alone and wants Docker for each task; here each has a local shell.

Runs in a venv of its own (peers.py): TASKS, AT_ONCE. Takes its server from OPENAI_BASE_URL.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

words = get_config_from_spec("mini.yaml")["agent"]


def one(number: int) -> None:
    model = LitellmModel(
        model_name="openai/fake",
        model_kwargs={"api_base": os.environ["OPENAI_BASE_URL"], "api_key": "none"},
        cost_tracking="ignore_errors",
    )
    DefaultAgent(
        model,
        LocalEnvironment(),
        system_template=words["system_template"],
        instance_template=words["instance_template"],
        cost_limit=0,
    ).run(f"Do what you want, number {number}.")


with ThreadPoolExecutor(int(sys.argv[2])) as pool:
    list(pool.map(one, range(int(sys.argv[1]))))
