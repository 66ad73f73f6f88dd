"""CPU from `stockade runs resume` of a long run to the model's first question: reading, folding, restoring, starting.

    .venv/bin/python bench/resume.py [--turns 1000] [--rounds 5]

The run is made here by the real loop on fakes and stands in a real record, with a real layer and its snapshots. What is
measured is a process of its own, by its resource usage: to the end of its imports, and from there to the question.
A run of one turn is measured beside it: what is left is what the turns cost. The least of the rounds is shown, since
others may use the machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from stockade.core import events as of
from stockade.core.actions import Answer, Shell, Step
from stockade.core.budget import Budget
from stockade.core.events import RunEvent, RunStarted, SandboxStarted
from stockade.core.messages import ModelAnswer, ModelInfo, Usage
from stockade.store.sqlite import SQLiteStore
from stockade.testing import say
from stockade_sandbox.backends.bubblewrap.sandbox import prepare_layers
from stockade_sandbox.overlay.snapshots import LayerSnapshots
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.results import Chunk, CommandOutput

FILES = 20
_ASKED = """
import gc, json, resource, sys, time
from stockade.cli import GC_OBJECTS
gc.set_threshold(GC_OBJECTS)  # as the command itself does
started = resource.getrusage(resource.RUSAGE_SELF)
{imports}
imported = resource.getrusage(resource.RUSAGE_SELF)
from stockade.models import scripted
def used(one): return one.ru_utime + one.ru_stime
async def ask(self, request, on_text=None):
    now, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps([used(imported), used(now), used(below)]), flush=True)
    import os
    os._exit(0)
scripted.ScriptedModel.ask = ask
from stockade.cli.commands import call
sys.exit(call(["runs", "resume", "last", "--no-input", "--max-turns", "100000", "--timeout", "0"]))
"""
_IMPORTS = (
    "import stockade.cli.resume, stockade.cli.run, stockade.store.sqlite, stockade_sandbox.backends.bubblewrap.sandbox"
)


async def make(home: Path, turns: int) -> None:
    """A record of `turns` turns and the layer that they left."""
    state, folder = home / "stockade", home / "folder"
    folder.mkdir()
    policy = Policy(folders=(FolderRule(host=str(folder)),))
    layers = prepare_layers(policy, state / "runs" / "long")
    script = home / "script.jsonl"
    script.write_text(json.dumps({"content": say("finish", answer="x")}) + "\n")  # its last line is said again
    events = _events(turns, f"scripted/{script}", policy)
    snapshots = LayerSnapshots(layers)
    store = SQLiteStore(state / "runs.db")
    made: list[RunEvent] = []
    upper = Path(str(layers[0].layer)) / "upper"
    for number, event in enumerate(events):
        if isinstance(event, SandboxStarted):
            event = event.model_copy(update={"layers": layers})
        if event.type == "checkpoint":
            (upper / f"file{number % FILES}").write_text(f"{number}\n" * 20)
            os.chown(upper / f"file{number % FILES}", upper.stat().st_uid, upper.stat().st_gid)
            event = event.model_copy(update={"files": await snapshots.keep()})
        made.append(event)
    async with store.driving("long"):
        await store.append("long", made)
    await store.close()


def _events(turns: int, model: str, policy: Policy) -> list[RunEvent]:
    now = time.time()
    made: list[RunEvent] = [
        RunStarted(
            at=now, version="0", run_id="long", task="A long task", bot="writing", model=model, answers="json",
            sandbox="bubblewrap", policy=policy, budget=Budget(max_turns=0, timeout_s=0), system_prompt="p" * 1500,
        ),
        SandboxStarted(at=now, backend="bubblewrap"),
        of.ModelStarted(at=now, info=ModelInfo(name="x", provider="scripted")),
    ]  # fmt: skip
    for turn in range(1, turns + 1):
        step = Step(action=Shell(command=f"command number {turn} --with some words"))
        output = CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", b"a line of output\n" * 12),), cwd="/workspace")
        content = say("shell", thought="Some thought of the bot.", command=f"command number {turn} --with some words")
        answer = ModelAnswer(content=content, usage=Usage(prompt_tokens=100 * turn, completion_tokens=30))
        made += [
            of.ModelAnswered(at=now, turn=turn, answer=answer),
            of.AnswerUnderstood(at=now, turn=turn, answer=Answer(thought="Some thought.", steps=(step,))),
            of.ActionStarted(at=now, turn=turn, step=0, action=step),
            *([of.Checkpoint(at=now, turn=turn)] if turn % 2 else []),
            of.ActionFinished(at=now, turn=turn, step=0, observation=output),
        ]
    return made


def measure(home: Path) -> tuple[float, float, float]:
    """CPU seconds: of the imports, from there to the question, and of what was started meanwhile."""
    environment = {**os.environ, "XDG_STATE_HOME": str(home)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled
    program = _ASKED.format(imports=_IMPORTS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    imported, asked, below = json.loads(done.stdout.splitlines()[-1])
    return imported, asked - imported, below


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    found: dict[int, list[tuple[float, float, float]]] = {1: [], chosen.turns: []}
    size = 0
    for _ in range(chosen.rounds):
        for turns, rows in found.items():
            with tempfile.TemporaryDirectory(prefix="stockade-bench-") as folder:
                anyio.run(make, Path(folder), turns)
                rows.append(measure(Path(folder)))
                size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    print("| turns | imports | from there to the question | of that, for the turns |")
    print("|---|---|---|---|")
    least = {turns: min(row[1] for row in rows) for turns, rows in found.items()}
    for turns, rows in found.items():
        imports, asked = min(row[0] for row in rows), least[turns]
        print(f"| {turns} | {1000 * imports:.0f} ms | {1000 * asked:.0f} ms | {1000 * (asked - least[1]):.0f} ms |")
    print(f"CPU, the least of {chosen.rounds} rounds; {chosen.turns} turns with their snapshots: {size >> 10} KiB")


if __name__ == "__main__":
    main()
