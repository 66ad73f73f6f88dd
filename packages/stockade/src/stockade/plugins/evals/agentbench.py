"""AgentBench's OS questions (Liu et al. 2023, arXiv 2308.03688) from the package inspect-evals: those whose folder an
inline script makes, or none, and whose answer is compared: with what the set's own reference command prints, or a text.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stockade.extend import TASK_HOME, EvalSet, EvalTask, data_of

PACKAGE, DATA = "inspect-evals", "inspect_evals/agent_bench/data"
_HOMES = re.compile(r"/home/agent|/root\b|/usr\b")
"""What the set and inspect-evals call the home folder."""
_HOW_TO_ANSWER = (
    f"\n\n{TASK_HOME} is your home folder, and you are in it. The answer that you finish with is compared as it stands:"
    " just the number, or just the text that is asked for."
)


def _tasks() -> Iterator[EvalTask]:
    file = data_of(PACKAGE, f"{DATA}/agent_bench_os_test.json")
    for row in json.loads(file.read_bytes()):
        prepare, score = _prepare(row.get("create")), _score(row["evaluation"], file.parent)
        if prepare is not None and score is not None:
            words = _at_home(row["description"]) + _HOW_TO_ANSWER
            yield EvalTask(str(row["id"]), words, score, prepare, _reference(row["evaluation"]))


def _prepare(create: Any) -> str | None:
    """None where the folder is made by a file that is not in the package, or by what has to go on running."""
    if create is None:
        return ""
    if not isinstance(create, dict) or create.get("init_at_start"):
        return None
    script = _code(create["init"]) if "init" in create else ""
    return None if script is None else f"export HOME={TASK_HOME}\n{_at_home(script)}"


def _score(evaluation: dict[str, Any], folder: Path) -> str | None:
    """None for checks that need more than the answer: users, or files of the machine."""
    if "match" in evaluation:
        return f'[ "$ANSWER" = {shlex.quote(str(evaluation["match"]))} ]'
    check, example = evaluation.get("check"), _code(evaluation.get("example"))
    if not (isinstance(check, list) and len(check) == 2 and isinstance(check[1], dict)) or example is None:
        return None
    name = Path(str(check[1].get("file"))).name
    comparing = (folder / "scripts" / "check" / name).read_text()
    return (
        f"export HOME={TASK_HOME}; cd {TASK_HOME}\n"
        f"expected=$(bash --login -c {shlex.quote(_at_home(example))}) || exit 1\n"
        f'python3 -c {shlex.quote(comparing)} "$ANSWER" "$expected"'
    )


def _reference(evaluation: dict[str, Any]) -> str:
    """What it prints is the answer."""
    if "match" in evaluation:
        return f"printf %s {shlex.quote(str(evaluation['match']))}"
    return f"export HOME={TASK_HOME}; cd {TASK_HOME}; {_at_home(_code(evaluation['example']) or '')}"


def _code(part: Any) -> str | None:
    text = part.get("code") if isinstance(part, dict) else part
    return text if isinstance(text, str) else None


def _at_home(text: str) -> str:
    return _HOMES.sub(TASK_HOME, text)


AGENTBENCH = EvalSet(
    about="questions about a folder, answered by shell commands (AgentBench OS, Liu et al. 2023)",
    package=PACKAGE,
    licence="MIT",
    tasks=_tasks,
    settings={"env": (f"HOME={TASK_HOME}",), "max_turns": 20},
)
