"""A hook that shows examples of a program behind its failed command: field method 4 (docs/measured/ability.md).

    [[hooks]]
    name = "examples"
    on = "after_action"
    command = ["python3", "bench/ability/examples_hook.py", "DIR"]   # barem/examples of an unpacked barem (MIT)

The two entries of the file that is named as a program of the failed line is, which are nearest by BM25 to the line and
the task. Nothing where no file is named so, or nothing failed.
"""

import json
import math
import re
import sys
from collections import Counter
from pathlib import Path

SHOWN, MAX_CHARS, K, B = 2, 400, 1.2, 0.75
_WORD = re.compile(r"[a-z0-9]+|-{1,2}[a-z0-9][a-z0-9-]*")
_PROGRAM = re.compile(r"(?:^|[|;&(`]|\$\()\s*(?:sudo\s+|xargs\s+)*([a-z][a-z0-9_.-]*)", re.MULTILINE)


def entries(folder: Path, program: str) -> list[str]:
    """Each a purpose and a command, as they stand there."""
    path = folder / f"{program}.txt"
    text = path.read_text() if path.is_file() else ""
    return [one.strip() for one in re.split(r"\n\s*\n", text) if one.startswith("# ")]


def nearest(found: list[str], query: str) -> list[str]:
    words = [Counter(_WORD.findall(one.lower())) for one in found]
    length = sum(map(Counter.total, words)) / max(1, len(words))
    known = Counter(word for one in words for word in one)

    def score(one: Counter[str]) -> float:
        total = 0.0
        for word in set(_WORD.findall(query.lower())) & one.keys():
            rare = math.log(1 + (len(words) - known[word] + 0.5) / (known[word] + 0.5))
            total += rare * one[word] * (K + 1) / (one[word] + K * (1 - B + B * one.total() / length))
        return total

    ranked = sorted(range(len(found)), key=lambda number: -score(words[number]))
    return [found[number] for number in ranked[:SHOWN]]


def main(folder: Path) -> None:
    event = json.load(sys.stdin)
    action, observation = event.get("action") or {}, event.get("observation") or {}
    command = action.get("command")
    if not isinstance(command, str) or not observation.get("exit_code"):
        return
    for program in dict.fromkeys(_PROGRAM.findall(command)):
        if found := entries(folder, program):
            shown = "\n".join(nearest(found, f"{command} {event.get('task', '')}"))
            print(json.dumps({"words": f"Examples of {program}:\n{shown[:MAX_CHARS]}"}))
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
