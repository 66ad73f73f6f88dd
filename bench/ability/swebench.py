"""Predictions for SWE-bench (Jimenez et al. 2023, arXiv 2310.06770): `python -m bench.ability.swebench INSTANCES`.

    skopeo copy docker://swebench/sweb.eval.x86_64.NAME oci:images/INSTANCE_ID         # for each instance
    python -m bench.ability.swebench INSTANCES.jsonl --model M --images oci:images/{instance_id} --into DIR
    pip install swebench==5.0.2
    python -m swebench.harness.run_evaluation --dataset_name INSTANCES.jsonl --predictions_path DIR/predictions.jsonl

INSTANCES is a file of the set's rows, JSON or a line each (the page of the data set gives it as such). Each is one run
in its own image, where the repository is, without network; its prediction is what git then finds changed, new files
too, against what was there before the run. Solved is what the set's own harness says, which applies that patch in a
container of the same image; nothing is judged here. Called again, what has a prediction is not run again; a run that
the machine or the model ended has none.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.progress import track

from bench.table import draw
from stockade import Bot, Policy, RunResult, Sandbox

TASK = """The repository in {where} is as it was when this issue was written. Change its code so that the issue is
resolved. It is judged by tests that are not shown to you; the tests that are there need no change.

{issue}"""
_PATCH = "/tmp/stockade.patch"
MACHINE = {"sandbox", "model", "store", "tools", "user", "bug"}
"""Reasons to end that say nothing about the bot: such a run has no prediction."""
PATH = (
    "/opt/miniconda3/envs/testbed/bin:/opt/miniconda3/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
"""First the environment that the set's images have for the tests."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines() if line]
    return list(rows)


def predict(issue: str, image: str, repository: str, options: dict[str, Any]) -> tuple[RunResult, str]:
    """The run in a sandbox of `image`, whose `repository` is a git work tree; and its changes as a patch of git's."""
    with Sandbox(policy=Policy(rootfs=image, environment={"PATH": PATH})) as box:

        def git(*words: str) -> str:
            done = box.exec(["git", "-C", repository, *words], timeout=600)
            if done.exit_code:
                raise RuntimeError(f"git {words[0]}: {done.stderr.decode(errors='replace').strip()}")
            return done.stdout.decode()

        git("add", "--all")  # what the image has and never committed is no change of the bot's
        before = git("write-tree").strip()
        git("reset", "--quiet")
        result = Bot(sandbox=box, **options).run(TASK.format(where=repository, issue=issue))
        git("add", "--all")
        git("diff", "--cached", "--binary", "--no-ext-diff", f"--output={_PATCH}", before)  # of any length
        return result, box.read_file(_PATCH).decode(errors="surrogateescape")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ability.swebench")
    parser.add_argument("instances", type=Path)
    parser.add_argument("--model", default="auto")
    parser.add_argument("--images", default="oci:images/{instance_id}", help="where the image of an instance is")
    parser.add_argument("--repository", default="/testbed")
    parser.add_argument("--into", type=Path, default=Path("swe-bench"))
    parser.add_argument("--ids", nargs="*", help="these instances; else all")
    parser.add_argument("--max-turns", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=14400.0, metavar="S")
    parser.add_argument("--max-cost", type=float, metavar="USD", help="of one run")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    predictions = args.into / "predictions.jsonl"
    done = {row["instance_id"] for row in read_rows(predictions)} if predictions.exists() else set()
    rows = [row for row in read_rows(args.instances) if not args.ids or row["instance_id"] in args.ids]
    options = {"model": args.model, "max_turns": args.max_turns, "timeout": args.timeout, "max_cost": args.max_cost}
    lines = list[list[str]]()
    for row in track([row for row in rows if row["instance_id"] not in done], "runs"):
        name, began = row["instance_id"], time.monotonic()
        result, patch = predict(row["problem_statement"], args.images.format(**row), args.repository, options)
        if result.reason not in MACHINE:
            made = {"instance_id": name, "model_name_or_path": f"stockade-{args.model}", "model_patch": patch}
            with predictions.open("a") as file:
                file.write(json.dumps(made) + "\n")
        tokens = result.usage.prompt_tokens + result.usage.completion_tokens
        seconds = f"{time.monotonic() - began:.0f}"
        lines.append([name, result.reason, str(result.turns), str(tokens), seconds, str(len(patch.splitlines()))])
    if lines:
        print(draw(["instance", "ended by", "turns", "tokens", "seconds", "lines of the patch"], lines))
    print(f"{predictions}: python -m swebench.harness.run_evaluation --predictions_path {predictions} ...")


if __name__ == "__main__":
    main()
