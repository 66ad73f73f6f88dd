"""InterCode's bash tasks that change files, out of its wheel: a second set that nobody here wrote or read.

    pip download --no-deps -d $XDG_CACHE_HOME/stockade-dev/ability intercode-bench==0.1.22

MIT (princeton-nlp/intercode). A task is solved when the folder is, file for file, what the set's own gold command makes
of it: the same paths and bytes, and the same modes where gold changes a mode. Of the 24 queries those are taken whose
gold command changes files, and the same way twice (`python -m bench.ability.intercode` writes the manifest).
"""

import hashlib
import json
import tempfile
import time
import zipfile
from functools import cache
from pathlib import Path

from bench.ability.agentbench import CACHE, HOME
from bench.ability.task import Check, Task, bash, judge, set_up

WHEEL = "intercode_bench-0.1.22-py3-none-any.whl"
_QUERIES, _SET_UP = "intercode/assets/datasets/bash_queries.json", "intercode/assets/docker/setup_fs.sh"
_ROOT = "/testbed"
MANIFEST = Path(__file__).with_name("judging-intercode.json")
Tree = dict[str, tuple[str, str]]


@cache
def queries() -> list[dict[str, str]]:
    with zipfile.ZipFile(CACHE / WHEEL) as wheel:
        found: list[dict[str, str]] = json.loads(wheel.read(_QUERIES))
    return found


@cache
def _prepare() -> str:
    with zipfile.ZipFile(CACHE / WHEEL) as wheel:
        script = wheel.read(_SET_UP).decode()
    return script.replace(f"rm -rf {_ROOT}/", "").replace(_ROOT, "$PWD")


def digest(query: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps([query, _prepare()], sort_keys=True).encode()).hexdigest()


def tree(folder: Path) -> Tree:
    """Mode and content hash of everything below `folder`."""
    return {
        str(path.relative_to(folder)): (
            oct(path.lstat().st_mode),
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


def _gold(number: int) -> str:
    """In a copy of the folder its path is another, so gold's absolute paths are written with $PWD."""
    return queries()[number]["gold"].replace(_ROOT, "$PWD")


def trees(number: int) -> tuple[Tree, Tree]:
    """The folder before gold and after it."""
    with tempfile.TemporaryDirectory(prefix="intercode-") as place:
        folder = Path(place)
        bash(_prepare(), folder).check_returncode()
        before = tree(folder)
        bash(_gold(number), folder)
        return before, tree(folder)


def _check(number: int) -> Check:
    def check(folder: Path) -> bool:
        before, after = trees(number)
        moded = {name for name in after if name in before and before[name][0] != after[name][0]}
        found = tree(folder)
        return {name: entry[1] for name, entry in found.items()} == {n: entry[1] for n, entry in after.items()} and all(
            found[name][0] == after[name][0] for name in moded
        )

    return check


def task(number: int) -> Task:
    words = queries()[number]["query"].replace(_ROOT, HOME)
    if HOME not in words:
        words += f" The folder is {HOME}."
    return Task(f"intercode-{number}", "files", 2, words, _check(number), _gold(number), prepare=_prepare())


def tasks() -> tuple[Task, ...]:
    """The frozen ones. ValueError where a query is not the one that was frozen."""
    frozen = json.loads(MANIFEST.read_text())["tasks"]
    for number, wanted in frozen.items():
        if digest(queries()[int(number)]) != wanted:
            raise ValueError(f"query {number} of {WHEEL} is not the frozen one")
    return tuple(task(int(number)) for number in frozen)


def _changes(number: int) -> bool:
    """Whether gold changes files, twice the same way, and the check says yes to it and no to an untouched folder."""
    before, after = trees(number)
    time.sleep(1.1)
    if before == after or trees(number)[1] != after:
        return False
    with tempfile.TemporaryDirectory(prefix="intercode-") as place:
        folder = Path(place)
        made = task(number)
        set_up(made, folder)
        untouched = judge(made, folder)
        bash(made.solution, folder)
        return not untouched and judge(made, folder)


def main() -> None:
    numbers = [number for number in range(len(queries())) if _changes(number)]
    wheel = hashlib.sha256((CACHE / WHEEL).read_bytes()).hexdigest()
    frozen = {"wheel": WHEEL, "sha256": wheel, "tasks": {str(n): digest(queries()[n]) for n in numbers}}
    MANIFEST.write_text(json.dumps(frozen, indent=1) + "\n")
    print(numbers)


if __name__ == "__main__":
    main()
