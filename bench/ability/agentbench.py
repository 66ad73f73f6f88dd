"""AgentBench's questions about a system, out of the wheel of inspect-evals: a set that nobody here wrote or read.

    pip download --no-deps --only-binary :all: -d $XDG_CACHE_HOME/stockade-dev/ability inspect-evals==0.26.0

The data is MIT (THUDM/AgentBench, UK AI Security Institute). Taken are the questions whose folder is made by an
inline script and whose answer is compared with what the set's own reference command prints. Which ones is decided by
a machine (`python -m bench.ability.agentbench`): the reference must print the same outside and inside a sandbox; the
first 24 by the sha256 of their ids were the set of the first judgement. Of those that it never used, SEED draws the
set of the next one, questions that may be read while rules are chosen, and the set of a third. As in inspect-evals
/root and /usr stand for the home folder: here, the folder.
"""

import hashlib
import json
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bench.ability.arms import SANDBOX_HOME
from bench.ability.task import ANSWER, Check, Task, bash, judge, set_up

WHEEL = "inspect_evals-0.26.0-py3-none-any.whl"
DATA = "inspect_evals/agent_bench/data/agent_bench_os_test.json"
HOME = SANDBOX_HOME
"""Where every arm finds the folder, and its HOME."""
MANIFEST, JUDGING, CHOOSING, JUDGING3 = (
    Path(__file__).with_name(f"{name}.json") for name in ("judging", "judging2", "choosing2", "judging3")
)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stockade-dev" / "ability"
SEED = "2026-11-24"
SIZES = {JUDGING: 26, CHOOSING: 14, JUDGING3: 10}
_HOMES = re.compile(r"/home/agent|/root|/usr")
_CHECKS = {"check/integer-match.py": "integer", "check/string-match.py": "string", "check/size-match.py": "string"}
_HOW_TO_ANSWER = (
    f"\n\n{HOME} is your home directory. Answer with just the answer: a bare integer for counts and numeric"
    " questions, or the exact string asked for, with no explanation, units or formatting. If the task asks you to write"
    " a script or command, run it yourself and answer with its output rather than the script."
)
"""inspect-evals' own words, where `submit` is the bot's end."""


@cache
def records() -> dict[str, dict[str, Any]]:
    """Every record of the set by its id. FileNotFoundError where the wheel has not been downloaded."""
    with zipfile.ZipFile(CACHE / WHEEL) as wheel:
        return {str(record["id"]): record for record in json.loads(wheel.read(DATA))}


def digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def suited() -> Iterator[str]:
    """Ids of what can run in a folder alone."""
    for name, record in records().items():
        create = record.get("create")
        check = record["evaluation"].get("check")
        inline = (
            isinstance(create, dict) and not create.get("init_at_start") and _script(create.get("init")) is not None
        )
        compared = isinstance(check, list) and len(check) == 2 and check[1].get("file") in _CHECKS
        if inline and compared and "start" not in record and _script(record["evaluation"].get("example")):
            yield name


def _script(part: Any) -> str | None:
    text = part.get("code") if isinstance(part, dict) else part
    return text if isinstance(text, str) else None


def in_home(text: str, home: str) -> str:
    return _HOMES.sub(home, text)


def in_folder(script: str) -> str:
    """Bash that runs a script of the set with the working folder as its home."""
    return f'HOME=$PWD bash -c "$(sed "s#@HOME@#$PWD#g" <<\'OF_THE_SET\'\n{in_home(script, "@HOME@")}\nOF_THE_SET\n)"'


def _check(record: dict[str, Any]) -> Check:
    kind = _CHECKS[record["evaluation"]["check"][1]["file"]]

    def check(folder: Path) -> bool:
        said = (folder / ANSWER).read_text(errors="replace").strip()
        (folder / ANSWER).unlink()
        reference = bash(in_folder(str(_script(record["evaluation"]["example"]))), folder).stdout.strip()
        if kind == "string":
            return said == reference
        numbers = re.findall(r"(?<![\w.])-?\d+(?![\w]|\.\d)", said)
        return len(numbers) == 1 and int(numbers[0]) == int(reference)

    return check


def task(name: str) -> Task:
    """`solution` is the set's own reference, run by the check."""
    record = records()[name]
    init = str(_script(record["create"]["init"]))
    example = str(_script(record["evaluation"]["example"]))
    return Task(
        name=f"agentbench-{name}",
        kind="questions",
        level=2,
        words=in_home(record["description"], HOME) + _HOW_TO_ANSWER,
        solved=_check(record),
        solution=f'answer=$({in_folder(example)}\n); printf %s "$answer" > {ANSWER}',
        prepare=in_folder(init),
    )


def tasks(manifest: Path = MANIFEST) -> tuple[Task, ...]:
    """Those frozen in `manifest`. ValueError where a record is not the one that was frozen."""
    frozen = json.loads(manifest.read_text())["tasks"]
    for name, wanted in frozen.items():
        if digest(records()[name]) != wanted:
            raise ValueError(f"record {name} of {WHEEL} is not the frozen one")
    return tuple(task(name) for name in frozen)


def _same_in_sandbox(name: str) -> bool:
    """Whether set-up, reference and check agree: outside, in a sandbox of ours, and twice."""
    with tempfile.TemporaryDirectory(prefix="agentbench-") as place:
        folder = Path(place)
        made = task(name)
        set_up(made, folder)
        reference = str(_script(records()[name]["evaluation"]["example"]))
        inside = subprocess.run(
            ["stockade", "sandbox", "exec", "--env", f"HOME={HOME}", "--folder", place, "--", "bash", "-c",
             in_home(reference, HOME)], capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        (folder / ANSWER).write_text(inside.stdout)
        if inside.returncode or not inside.stdout.strip() or not judge(made, folder):
            return False
        (folder / ANSWER).write_text("no answer")
        return not judge(made, folder)


def main() -> None:
    """Prints which records that no set has yet can run here, in the order drawn, and writes the manifests."""
    used = json.loads(MANIFEST.read_text())["tasks"]
    drawn = sorted(set(suited()) - set(used), key=lambda name: hashlib.sha256(f"{SEED} {name}".encode()).hexdigest())
    good = []
    for name in drawn:
        try:
            same = _same_in_sandbox(name)
        except (subprocess.SubprocessError, OSError) as error:
            print(name, type(error).__name__)
            continue
        print(name, same)
        good += [name] if same else []
    wheel = hashlib.sha256((CACHE / WHEEL).read_bytes()).hexdigest()
    for manifest, size in SIZES.items():
        of, good = good[:size], good[size:]
        frozen = {"wheel": WHEEL, "sha256": wheel, "tasks": {name: digest(records()[name]) for name in of}}
        manifest.write_text(json.dumps(frozen, indent=1) + "\n")


if __name__ == "__main__":
    main()
