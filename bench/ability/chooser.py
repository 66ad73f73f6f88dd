"""Which of several end states of one task is right?

    python -m bench.ability.chooser --server URL --set fresh --from DIR --arms A,B,C

The candidates are what arms of Stockade made of a task (their records in DIR, as `python -m bench.ability` leaves
them): the commands are run again in the task's folder, so that there is an end state to look at. Ways to choose, none
of which knows the task's own check: *first* takes the first arm, *most* the end state that most arms share, *yes* asks
the model of each what was changed and takes the likeliest yes, *pick* shows all of them and asks for a letter, in both
orders, *check* has the model write a command that tells right from wrong before it sees any, and takes the first
candidate that passes it.
"""

import argparse
import json
import math
import re
import subprocess
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.ability.arms import sealed
from bench.ability.proxy import KEY
from bench.ability.sets import SETS
from bench.ability.task import ANSWER, Task, bash, judge, set_up

SHOWN_CHARS = 1500
TIMEOUT_S = 60
_REPLAY = 'for command; do eval "$command"; done'
_DIFF = ("diff", "-ruN", "--exclude=.git")
_HEADER = re.compile(r"^diff -ruN .*\n", re.MULTILINE)
_TIME = re.compile(r"^((?:---|\+\+\+) [^\t\n]+)\t.*$", re.MULTILINE)
_GIT = "git log --all --oneline -6; git status --short --branch; git stash list"
SYSTEM = "You review what was done in a folder. You are strict: what is not exactly as the task wants it is wrong."


@dataclass(frozen=True)
class Candidate:
    """`diff` is what a user would see of it, cut; `answer` its last words."""

    arm: str
    folder: Path
    solved: bool
    diff: str
    answer: str
    alike: int = 1
    """How many arms ended so."""

    @property
    def state(self) -> str:
        return self.diff or self.answer

    @property
    def words(self) -> str:
        return f"Changes:\n{self.diff or 'none'}\nIt says: {self.answer[:200]}"


@dataclass
class Server:
    """An OpenAI-compatible one that tells log probabilities."""

    url: str
    asked: int = 0
    scores: list[tuple[float, bool]] = field(default_factory=list)
    """Of every candidate that *yes* has asked about: how likely its yes was, and whether it is right."""

    def ask(self, words: str, **options: Any) -> dict[str, Any]:
        """The first choice. OSError where it cannot be had."""
        self.asked += 1
        body = {"model": "m", "temperature": 0, "max_tokens": 200, **options,
                "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": words}]}  # fmt: skip
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return dict(json.load(answer)["choices"][0])


def commands(record: Path) -> tuple[list[str], str]:
    """The commands that ran, and the answer."""
    ran, answer = list[str](), ""
    actions = dict[tuple[int, int], str]()
    for line in record.read_text().splitlines():
        event = json.loads(line)
        if event["type"] == "action_started":
            actions[event["turn"], event["step"]] = event["action"]["action"].get("command", "")
        elif event["type"] == "action_finished" and event["observation"]["kind"] == "command":
            ran.append(actions.pop((event["turn"], event["step"])))
        elif event["type"] == "result":
            answer = event["answer"] or ""
    return ran, answer


def candidate(task: Task, record: Path, arm: str, into: Path) -> Candidate:
    """The end state of a record, made again."""
    before, after = into / "before", into / arm
    for folder in (before, after):
        if not folder.exists():
            folder.mkdir()
            set_up(task, folder)
    ran, answer = commands(record)
    run(["bash", "-c", _REPLAY, "bash", *ran], after)
    if task.kind == "questions":
        (after / ANSWER).write_text(answer)
    solved = judge(task, after)
    shown = subprocess.run([*_DIFF, "before", arm], cwd=into, capture_output=True, text=True, errors="replace",
                           check=False).stdout.replace(f"{arm}/", "after/")  # fmt: skip
    shown = _HEADER.sub("", _TIME.sub(r"\1", shown))
    for folder in (before, after):
        if (folder / ".git").exists():
            shown += f"{folder.name.replace(arm, 'after')}:\n{bash(_GIT, folder).stdout}"
    return Candidate(arm, after, solved, shown[:SHOWN_CHARS], answer)


def run(argv: Sequence[str], folder: Path) -> int:
    """The exit status of a program in the peers' sandbox; 124 after its time."""
    try:
        done = subprocess.run(sealed(folder, argv), capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return 124
    return done.returncode


def by_yes(task: Task, found: Sequence[Candidate], server: Server) -> int:
    def likely(one: Candidate) -> float:
        words = f"The task: {task.words}\n\n{one.words}\n\nIs the task done, exactly as it was asked? Answer yes or no."
        answer = server.ask(words, max_tokens=1, logprobs=True, top_logprobs=20)
        first = answer["logprobs"]["content"][0]["top_logprobs"]
        yes, no = (
            sum(math.exp(token["logprob"]) for token in first if token["token"].strip().lower() == word)
            for word in ("yes", "no")
        )
        return yes / max(1e-9, yes + no)

    scores = [likely(one) for one in found]
    server.scores += zip(scores, (one.solved for one in found), strict=True)
    return scores.index(max(scores))


def by_pick(task: Task, found: Sequence[Candidate], server: Server) -> int:
    votes = Counter[int]()
    for order in (list(range(len(found))), list(reversed(range(len(found))))):
        letters = "ABCDEFGH"[: len(order)]
        shown = "\n\n".join(f"{letter}:\n{found[at].words}" for letter, at in zip(letters, order, strict=True))
        words = f"The task: {task.words}\n\n{shown}\n\nWhich one has done the task right? Answer with its letter."
        choice = {"type": "object", "properties": {"best": {"enum": list(letters)}}, "required": ["best"]}
        format_ = {"type": "json_schema", "json_schema": {"name": "best", "strict": True, "schema": choice}}
        answer = server.ask(words, response_format=format_)
        votes[order[letters.index(json.loads(answer["message"]["content"])["best"])]] += 1
    (best, count), *_ = votes.most_common(1)
    return best if count > 1 else min(votes)


def by_check(task: Task, found: Sequence[Candidate], server: Server) -> int:
    listing = subprocess.run(["ls", "-AR"], cwd=found[0].folder.parent / "before", capture_output=True, text=True,
                             check=False).stdout[:600]  # fmt: skip
    words = (
        f"The task: {task.words}\n\nThe folder before:\n{listing}\nWrite a bash script that looks at the folder after"
        " the task and ends with exit 0 if it is done right, else with exit 1. It must not change anything."
    )
    text = server.ask(words, max_tokens=400)["message"]["content"]
    script = text.partition("```bash\n")[2].partition("\n```")[0] or text
    passing = [at for at, one in enumerate(found) if run(["bash", "-c", script], one.folder) == 0]
    return passing[0] if passing else 0


WAYS: dict[str, Callable[[Task, Sequence[Candidate], Server], int]] = {
    "first": lambda _task, _found, _server: 0,
    "most": lambda _task, found, _server: max(range(len(found)), key=lambda at: found[at].alike),
    "yes": by_yes,
    "pick": by_pick,
    "check": by_check,
}


def told_apart(scores: Sequence[tuple[float, bool]]) -> float:
    """How often a right one has the likelier yes of a right and a wrong one (the area under the ROC curve)."""
    right, wrong = ([score for score, solved in scores if solved is kind] for kind in (True, False))
    pairs = [(one > other) + (one == other) / 2 for one in right for other in wrong]
    return sum(pairs) / max(1, len(pairs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ability.chooser", description=__doc__.partition("\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--set", dest="of", default="fresh")
    parser.add_argument("--from", dest="records", type=Path, required=True)
    parser.add_argument("--arms", required=True)
    parser.add_argument("--ways", default=",".join(WAYS))
    given = parser.parse_args()
    server, arms, ways = Server(given.server), given.arms.split(","), given.ways.split(",")
    right, ideal, differ = Counter[str](), 0, 0
    for task in SETS[given.of]:
        with tempfile.TemporaryDirectory(prefix="chooser-") as into:
            records = {arm: given.records / arm / f"{task.name}.jsonl" for arm in arms}
            all_ = [candidate(task, file, arm, Path(into)) for arm, file in records.items() if file.exists()]
            alike = Counter(one.state for one in all_)
            found = [replace(one, alike=alike.pop(one.state)) for one in all_ if one.state in alike]
            ideal += any(one.solved for one in all_)
            right.update(one.arm for one in all_ if one.solved)
            differ += len({one.solved for one in all_}) > 1
            for way in ways:
                at = WAYS[way](task, found, server) if len(found) > 1 or way == "yes" else 0
                right[f"by {way}"] += found[at].solved
        print(task.name, len(found), "".join("-+"[one.solved] for one in all_), dict(right), flush=True)
    print(f"{given.of}: {dict(right)}, ideal {ideal}, right and wrong among them in {differ}, {server.asked} questions")
    if server.scores:
        apart = told_apart(server.scores)
        print(f"a right one has the likelier yes in {apart:.0%} of pairs, {len(server.scores)} asked")


if __name__ == "__main__":
    main()
