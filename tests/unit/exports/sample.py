"""A run on record with a bit of everything, and what a hostile model and a hostile command put into it."""

from stockade.core.budget import Budget
from stockade.core.events import RunEvent, RunResumed
from stockade.loop.resume import resume
from stockade.testing import MemorySandbox, say
from stockade_sandbox.results import Chunk, CommandOutput
from tests.unit.loop.helpers import Bench, started

HOSTILE = "\x1b]0;owned\x07```\n# not a heading\n<script>alert(1)</script>\u202e"


async def sample_run(*, again: bool = False) -> list[RunEvent]:
    script = [
        say("shell", thought="Look *first*.", command="cat it"),
        "no action in this",
        say("write_file", path="out.txt", content="x\n"),
        say("finish", answer=f"done {HOSTILE}"),
        *([say("shell", command="more"), say("finish", answer="that too")] if again else []),
    ]
    output = CommandOutput(exit_code=1, chunks=(Chunk.of("stdout", HOSTILE.encode()), Chunk.of("stderr", b"\xff")))
    bench = Bench(script, MemorySandbox({"cat it": output}))
    await bench.run(started(task="Do it, please"))
    history = await bench.store.events("r1")
    if again:
        first = RunResumed(
            at=1_000_100.0, version="0", task="And more", model="scripted/y", sandbox="memory", budget=Budget()
        )
        await resume(history, first, bench.parts)
    return await bench.store.events("r1")
