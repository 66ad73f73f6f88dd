"""swe-rex's LocalRuntime, which is a shell without a sandbox: `peer_rex.py ROUNDS COUNT BYTES`, ms by step as JSON."""

import asyncio
import importlib
import json
import sys
import tempfile
import time
from typing import Any

abstract = importlib.import_module("swerex.runtime.abstract")
local = importlib.import_module("swerex.runtime.local")
PATIENCE_S = 30.0
"""As peer_shell.py: it gives up where the prompt is not back at once, which happens on a busy machine."""


def patient(shell: Any) -> None:
    expect = shell.expect
    shell.expect = lambda pattern, timeout: expect(pattern, timeout=timeout and max(timeout, PATIENCE_S))


async def main() -> None:
    rounds, count, size = map(int, sys.argv[1:])
    spent: dict[str, list[float]] = {}

    def note(step: str, begun: float) -> None:
        spent.setdefault(step, []).append(1000 * (time.perf_counter() - begun))

    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            runtime = local.LocalRuntime()
            begun = time.perf_counter()
            await runtime.create_session(abstract.CreateBashSessionRequest())
            note("start", begun)
            patient(runtime.sessions["default"].shell)
            begun = time.perf_counter()
            await runtime.run_in_session(abstract.BashAction(command="true"))
            note("command", begun)
            begun = time.perf_counter()
            await asyncio.gather(*(runtime.execute(abstract.Command(command=["true"])) for _ in range(count)))
            note("at once", begun)
            begun = time.perf_counter()
            await runtime.write_file(abstract.WriteFileRequest(path=f"{folder}/x", content="x" * size))
            note("file in", begun)
            begun = time.perf_counter()
            await runtime.read_file(abstract.ReadFileRequest(path=f"{folder}/x"))
            note("file out", begun)
            await runtime.close()
    print(json.dumps(spent))


asyncio.run(main())
