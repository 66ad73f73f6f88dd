"""InterCode's bash queries (Yang et al. 2023, arXiv 2306.14898) from the package intercode-bench.

Solved is what its own reward calls whole: the same files with the same contents as after the gold command, and where
that prints something an answer of the same words, as its TF-IDF vectors tell words apart.
"""

import json
import shlex
from collections.abc import Iterator

from stockade.extend import TASK_HOME, EvalSet, EvalTask, data_of

PACKAGE = "intercode-bench"
QUERIES, SET_UP = "intercode/assets/datasets/bash_queries.json", "intercode/assets/docker/setup_fs.sh"
_ROOT = "/testbed"
_COMPARE = r"""
import hashlib, os, re, sys
from collections import Counter
from pathlib import Path

def tree(root):
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for path in Path(root).rglob("*")}

def words(text):
    return Counter(re.findall(r"\b\w\w+\b", text.lower()))

mine, gold, printed = sys.argv[1:]
answer = os.environ["ANSWER"].replace(mine, "/testbed")
same = words(answer) == words(printed.replace(gold, "/testbed"))
sys.exit(not (tree(mine) == tree(gold) and (same or not printed.strip())))
"""


def _tasks() -> Iterator[EvalTask]:
    queries = json.loads(data_of(PACKAGE, QUERIES).read_bytes())
    set_up = data_of(PACKAGE, SET_UP).read_text().replace(f"rm -rf {_ROOT}/", "")
    for number, row in enumerate(queries):
        words = row["query"].replace(_ROOT, TASK_HOME)
        task = f"{words}\n\nThe testbed is {TASK_HOME}. Do it, and finish with what the command prints."
        score, prepare = _score(row["gold"], set_up), set_up.replace(_ROOT, TASK_HOME)
        yield EvalTask(f"bash-{number}", task, score, prepare, row["gold"].replace(_ROOT, TASK_HOME))


def _score(gold: str, set_up: str) -> str:
    """Gold has a folder of its own, as the set's evaluation container has."""
    place = "/tmp/gold"
    made = shlex.quote(set_up.replace(_ROOT, place))
    command = shlex.quote(gold.replace(_ROOT, place))
    return (
        f"mkdir {place} && cd {place} && bash -c {made} >/dev/null 2>&1\nprinted=$(bash -c {command} 2>&1)\n"
        f'python3 -c {shlex.quote(_COMPARE)} {TASK_HOME} {place} "$printed"'
    )


INTERCODE = EvalSet(
    about="24 queries to answer by a bash command in a folder (InterCode, Yang et al. 2023)",
    package=PACKAGE,
    licence="MIT",
    tasks=_tasks,
    settings={"max_turns": 20},
)
