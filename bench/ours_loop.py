"""Our loop with its real model adapter and its real record (SQLite, synchronous=FULL), but a bare `bash -c`.

What the loop costs, without the sandbox and the command line. Takes its server from OPENAI_BASE_URL and the record's
path as its argument.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import anyio

from stockade.answers.json_schema import JsonAnswers
from stockade.bots.opening import opening
from stockade.bots.spec import WRITING
from stockade.core.budget import Budget
from stockade.core.events import RunStarted
from stockade.core.ports import ExecResult, OnNetwork
from stockade.loop.run import Dependencies, run
from stockade.models.openai import OpenAIModel
from stockade.store.sqlite import SQLiteStore
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import Chunk, CommandOutput, FolderLayer


class BareShell:
    """Implements core.ports.Sandbox with nothing sealed: the very call that floor.py makes."""

    backend = "bench"
    layers: tuple[FolderLayer, ...] = ()
    guarantees: tuple[str, ...] = ()
    on_network: OnNetwork | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)  # noqa: ASYNC221 - as floor.py
        chunks = [Chunk.of("stdout", done.stdout)] if done.stdout else []
        chunks += [Chunk.of("stderr", done.stderr)] if done.stderr else []
        return CommandOutput(exit_code=done.returncode, chunks=tuple(chunks), cwd="/workspace")

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        return ExecResult(exit_code=1, stdout=b"", stderr=b"this work only runs commands")


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


async def main(record: Path) -> None:
    protocol, spec = JsonAnswers(), WRITING
    started = RunStarted(
        at=time.time(), version="bench", run_id="bench", task="Do what you want.", bot=spec.name, model="openai/fake",
        answers=protocol.name, sandbox="bench", policy=Policy(), budget=Budget(max_turns=0, timeout_s=0),
        system_prompt=opening(spec, protocol, Policy()),
    )  # fmt: skip
    store = SQLiteStore(record)
    parts = Dependencies(
        model=OpenAIModel(os.environ["OPENAI_BASE_URL"], "fake"), protocol=protocol, sandbox=BareShell(), store=store,
        clock=SystemClock(), tools=spec.all_tools,
    )  # fmt: skip
    finished = await run(started, parts)
    await store.close()
    if finished.status != "done":
        sys.exit(f"{finished.status} ({finished.reason}): {finished.detail}")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
