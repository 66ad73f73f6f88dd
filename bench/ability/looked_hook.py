"""A hook that sends the first finish back and asks to look at the result (Self-Refine, arXiv 2303.17651)."""

import json
import sys
from pathlib import Path

WORDS = (
    "Before this counts, look once: run one command that shows what you have made, or what your answer comes from, and"
    " compare it with every word of the task. Mend what differs, then finish."
)


def main() -> None:
    told = Path.home() / f"looked-{json.load(sys.stdin)['run']}"
    if not told.exists():
        told.touch()
        print(json.dumps({"send_back": WORDS}))


if __name__ == "__main__":
    main()
