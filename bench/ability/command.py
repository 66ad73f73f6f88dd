"""`python -m bench.ability`: which arms, which tasks, on which server; goes on where it was interrupted."""

import argparse
import json
import os
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.progress import Progress

from bench.ability.arms import Arm, arms
from bench.ability.outcome import Outcome, append, read
from bench.ability.proxy import proxy
from bench.ability.report import markdown
from bench.ability.sets import CHOOSING, DEFAULT, NAMES, members, set_of
from bench.ability.task import ANSWER, Task, judge, set_up
from bench.ability.tasks import held_out

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stockade-dev" / "ability"
MAX_TURNS = 12


def attempt(arm: Arm, task: Task, transcripts: Path, max_turns: int) -> Outcome:
    """One task by one arm in a fresh folder; what was said is kept in `transcripts`."""
    with tempfile.TemporaryDirectory(prefix="ability-") as name:
        folder = Path(name) / "work"
        folder.mkdir()
        set_up(task, folder)
        begun = time.monotonic()
        did = arm.do(task.words, folder, uuid.uuid4().hex[:8], max_turns)
        seconds = time.monotonic() - begun
        if task.kind == "questions":
            (folder / ANSWER).write_text(did.answer)
        solved = judge(task, folder)
    transcripts.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in did.transcript)
    (transcripts / f"{task.name}.jsonl").write_text(lines)
    return Outcome(
        arm.name, task.name, solved, did.ended, did.turns, did.malformed, did.tokens, round(seconds, 1), did.answer,
        did.detail,
    )  # fmt: skip


def run(arms: Sequence[Arm], tasks: Sequence[Task], folder: Path, at_once: int, max_turns: int) -> None:
    """What is not done yet, task by task and each by every arm, so that a stop leaves pairs; each outcome is on disk as
    soon as it is there.
    """
    known = {(arm.name, outcome.task) for arm in arms for outcome in read(folder / f"{arm.name}.jsonl")}
    todo = [(arm, task) for task in tasks for arm in arms if (arm.name, task.name) not in known]
    with Progress(transient=False) as progress, ThreadPoolExecutor(at_once) as pool:
        bar = progress.add_task("ability", total=len(todo))
        running = [pool.submit(attempt, arm, task, folder / arm.name, max_turns) for arm, task in todo]
        for future in as_completed(running):
            outcome = future.result()
            append(folder / f"{outcome.arm}.jsonl", outcome)
            mark = "+" if outcome.solved else "-"
            progress.console.print(
                f"{mark} {outcome.arm}: {outcome.task} {outcome.ended} {outcome.turns} turns {outcome.seconds:.0f} s",
                highlight=False,
            )
            progress.advance(bar)


def chosen(names: str, half: str, of: str = DEFAULT) -> list[Task]:
    """Some tasks of the set `of`; `half` is all, tuned or held-out, and only the default set has halves."""
    picked = [task for task in members(of) if not names or task.name in names.split(",")]
    if half == "all":
        return picked
    return [task for task in picked if held_out(task) == (half == "held-out")]


def results(into: Path | None, of: str) -> Path:
    """The folder for results of the set `of`, by default one of its own. ValueError when it has those of another."""
    folder = into or CACHE / ("qwen" if of == DEFAULT else f"qwen-{of}")
    known = {outcome.task for file in folder.glob("*.jsonl") for outcome in read(file)}
    if known and set_of(known) != ("fresh3" if of == CHOOSING else of):
        raise ValueError(f"{folder} holds results of the set {set_of(known)}, not of {of}")
    return folder


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="http://127.0.0.1:8080/v1", help="OpenAI-compatible; key: OPENAI_API_KEY")
    parser.add_argument("--arms", default="stockade", help="with commas between them; `list` says which there are")
    parser.add_argument("--tasks", default="", help="names with commas between them; all by default")
    parser.add_argument("--set", choices=NAMES, default=DEFAULT, dest="of", help="nothing is tuned on fresh ones")
    parser.add_argument("--half", choices=("all", "tuned", "held-out"), default="all", help="of the set tasks")
    parser.add_argument("--at-once", type=int, default=3, help="as many as the server has slots")
    parser.add_argument("--max-turns", type=int, default=MAX_TURNS)
    parser.add_argument("--base", type=Path, help="a checkout with a .venv: the arms base and base-no-advice are its")
    parser.add_argument("--into", type=Path, help="the folder of the results; goes on with it")
    parser.add_argument("--report", type=Path, help="write the tables of --into to this file and run nothing")
    arguments = parser.parse_args(argv)
    if arguments.half != "all" and arguments.of != DEFAULT:
        parser.error(f"--half is for --set {DEFAULT}: the set {arguments.of} has no halves, nothing is tuned on it")
    try:
        into = results(arguments.into, arguments.of)
    except ValueError as error:
        parser.error(str(error))
    if arguments.report:
        arguments.report.write_text(markdown(into))
        return
    with proxy(arguments.server) as between:
        known = arms(arguments.server, between, arguments.base)
        if arguments.arms == "list":
            print("\n".join(known))
            return
        tasks = chosen(arguments.tasks, arguments.half, arguments.of)
        run([known[name] for name in arguments.arms.split(",")], tasks, into, arguments.at_once, arguments.max_turns)
    print(markdown(into))
