"""What an attempt costs beside the model: `python -m bench.humaneval.cost`.

Programs that fail a check, one after the other in one sandbox, by the coder's own loop; from each answer of a model
that takes no time to the next.
"""

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import anyio

from stockade import __version__
from stockade.core.budget import Budget
from stockade.core.events import RunStarted
from stockade.loop.run import run
from stockade.loop.run_context import Dependencies
from stockade.plugins.coder.answers import SectionAnswers
from stockade.plugins.coder.bot import CODER, Wanted, make_coder
from stockade.plugins.coder.prompts import system
from stockade.plugins.coder.work import Plan
from stockade.runtime.records import SystemClock, open_store
from stockade.runtime.sandboxes import open_sandbox
from stockade.testing import ScriptedModel
from stockade_sandbox.policy import Policy

ATTEMPTS = 30
TASK = "Write add(a, b). add(1, 2) == 3"


async def attempts(folder: Path) -> list[float]:
    """Seconds of each but the first, which writes the checks."""
    wanted = Wanted(plan=Plan(repairs=ATTEMPTS, fresh_starts=0, rounds=ATTEMPTS))
    policy = CODER.bot.policy(Policy())
    coder = make_coder(wanted, policy, TASK)
    sandbox = open_sandbox(policy, "bubblewrap", folder / "layers")
    store = open_store(str(folder / "runs.db"))
    started = RunStarted(
        at=time.time(), version=__version__, run_id="cost", task=TASK, bot="coder", model="script", answers="sections",
        sandbox=sandbox.backend, policy=policy, budget=Budget(max_turns=0, timeout_s=0),
        system_prompt=system(wants_example=False),
    )  # fmt: skip
    model = ScriptedModel(f"```python\ndef add(a, b):\n    return a - b - {number}\n```" for number in range(ATTEMPTS))
    async with store.driving("cost"):
        await run(started, Dependencies(model, SectionAnswers(), sandbox, store, SystemClock(), (), bot=coder))
    asked = [event.at for event in await store.events("cost") if event.type == "model_answered"]
    await store.close()
    return [after - before for before, after in pairwise(asked[1:])]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="stockade-cost-") as name:
        times = sorted(anyio.run(attempts, Path(name)))
    median, last = statistics.median(times) * 1000, times[int(len(times) * 0.95)] * 1000
    print(f"{len(times)} attempts: median {median:.0f} ms, 95 % within {last:.0f} ms, least {times[0] * 1000:.0f} ms")


if __name__ == "__main__":
    main()
