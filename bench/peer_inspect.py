"""inspect_ai on many tasks at once: its `eval` of its own `react` agent with a bash tool in its `local` sandbox, which
seals nothing. Runs in a venv of its own (peers.py): TASKS, AT_ONCE. Takes its server from OPENAI_BASE_URL.
"""

import sys
import tempfile

from inspect_ai import Task, eval
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.tool import bash

count, at_once = int(sys.argv[1]), int(sys.argv[2])
samples = [Sample(id=number, input=f"Do what you want, number {number}.", target="done") for number in range(count)]
task = Task(dataset=samples, solver=react(tools=[bash()]), scorer=includes(), sandbox="local")
with tempfile.TemporaryDirectory() as logs:
    (log,) = eval(
        task, model="openai/fake", model_args={"responses_api": False}, log_dir=logs, display="none",
        max_samples=at_once, max_connections=at_once, max_subprocesses=at_once,
    )  # fmt: skip
    assert log.status == "success", log.error
    assert log.results is not None
    assert log.results.completed_samples == count
