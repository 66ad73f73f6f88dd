"""The persistent shells of swe-rex and microbots, each in its own venv: a command a line in, its wall seconds out.

`peer_shell.py swe-rex|microbots`. The time is taken here, so that this pipe is not in it. Only one of the two can be
imported where this runs, hence by name.
"""

import asyncio
import importlib
import json
import logging
import os
import sys
import time


def answer(value: float) -> None:
    os.write(OUT, f"{value!r}\n".encode())


PATIENCE_S = 10.0
"""swe-rex gives up, and its session with it, when the prompt is not back 0.1 s after the status: at a load of 5 that
happens every few hundred commands. Waiting longer costs nothing where the prompt comes."""


async def swe_rex() -> None:
    abstract = importlib.import_module("swerex.runtime.abstract")
    runtime = importlib.import_module("swerex.runtime.local").LocalRuntime()
    await runtime.create_session(abstract.CreateBashSessionRequest())
    shell = runtime.sessions["default"].shell
    expect = shell.expect
    shell.expect = lambda pattern, timeout: expect(pattern, timeout=timeout and max(timeout, PATIENCE_S))
    answer(0.0)
    for line in sys.stdin:
        action = abstract.BashAction(command=json.loads(line))
        begun = time.perf_counter()
        done = await runtime.run_in_session(action)
        answer(time.perf_counter() - begun)
        if done.exit_code:
            raise SystemExit(f"status {done.exit_code}")


def microbots() -> None:
    # On import it opens a log in /var/log/microbots, a folder that only its own image has.
    setattr(logging, "FileHandler", lambda *_, **__: logging.NullHandler())  # noqa: B010 - a type checker refuses the other
    folder = "microbots.environment.local_docker.image_builder"
    shell = importlib.import_module(f"{folder}.ShellCommunicator").ShellCommunicator("bash")
    shell.start_session()
    answer(0.0)
    for line in sys.stdin:
        command = json.loads(line)
        begun = time.perf_counter()
        shell.send_command(command, wait_for_output=True)
        answer(time.perf_counter() - begun)


if __name__ == "__main__":
    OUT = os.dup(1)
    os.dup2(2, 1)
    if sys.argv[1] == "swe-rex":
        asyncio.run(swe_rex())
    else:
        microbots()
