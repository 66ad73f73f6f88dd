"""A hook that is a program of the user's, on this machine: JSON on its standard input, a decision as JSON back.

    [[hooks]]
    name = "no-push"
    on = "before_action"
    command = ["python3", "/home/me/no_push.py"]
    timeout = 5

It reads one object: `{"on", "run", "turn", "task", "action"?, "observation"?, "answer"?}`, and writes nothing, `{}` or
one of `{"message": TEXT}` (before_turn), `{"refuse": REASON}` (before_action), `{"words": TEXT}` (after_action),
`{"send_back": TEXT}` (before_finish), `{"end": REASON}` (before a turn, an action or a finish). Exit status 0; every
other, a time-out or something that is not JSON is a broken hook.
"""

import json
import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import anyio
from anyio.abc import Process

from stockade.core.actions import Action, Finish, Observation, Step, fields_of
from stockade.core.errors import HookFailed
from stockade.extend import Accept, AddMessage, AddWords, EndRun, Hook, HookContext, Refuse, SendBack

Moment = Literal["before_turn", "before_action", "after_action", "before_finish"]
MAX_OUTPUT_BYTES = 100_000
_KEYS: dict[Moment, dict[str, type]] = {
    "before_turn": {"message": AddMessage},
    "before_action": {"refuse": Refuse},
    "after_action": {"words": AddWords},
    "before_finish": {"send_back": SendBack},
}


class CommandHook(Hook):
    """`command` is asked at one moment, `timeout_s` seconds at most."""

    def __init__(self, name: str, on: Moment, command: Sequence[str], timeout_s: float) -> None:
        self.name, self.on, self.command, self.timeout_s = name, on, tuple(command), timeout_s

    async def before_turn(self, ctx: HookContext) -> AddMessage | EndRun | None:
        return await self._ask("before_turn", ctx) if self.on == "before_turn" else None

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | EndRun | None:
        fields = {"action": action.model_dump(mode="json")}
        return await self._ask("before_action", ctx, **fields) if self.on == "before_action" else None

    async def after_action(self, ctx: HookContext, step: Step, observation: Observation) -> AddWords | None:
        fields = {"action": step.action.model_dump(mode="json"), "observation": fields_of(observation)}
        return await self._ask("after_action", ctx, **fields) if self.on == "after_action" else None

    async def before_finish(self, ctx: HookContext, finish: Finish) -> Accept | SendBack | EndRun | None:
        return await self._ask("before_finish", ctx, answer=finish.answer) if self.on == "before_finish" else None

    async def _ask(self, on: Moment, ctx: HookContext, **fields: Any) -> Any:
        asked = {"on": on, "run": ctx.started.run_id, "turn": ctx.state.turns, "task": ctx.started.task, **fields}
        try:
            status, output, errors = await self._run(json.dumps(asked).encode())
        except OSError as error:
            raise self._broken(f"{self.command[0]} cannot be started: {error.strerror}") from error
        if status:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2][:200]
            raise self._broken(f"{self.command[0]} ended with exit status {status}: {last}".removesuffix(": "))
        return self._decision(on, output)

    async def _run(self, given: bytes) -> tuple[int, bytes, bytes]:
        """Exit status, output and errors. In a session of its own: a Ctrl-C is not for it, and it ends as a whole.

        What it reads is a file, so it may leave it unread.
        """
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(given)
            stdin.seek(0)
            process = await anyio.open_process(self.command, stdin=stdin, stderr=stderr, start_new_session=True)
            async with process:
                try:
                    output = await self._output(process)
                    status = await process.wait()
                except BaseException:
                    if process.returncode is None:
                        with suppress(ProcessLookupError):  # it has ended, and that is not known yet
                            os.killpg(process.pid, signal.SIGKILL)
                    raise
            return status, output, os.pread(stderr.fileno(), MAX_OUTPUT_BYTES, 0)

    async def _output(self, process: Process) -> bytes:
        output = b""
        assert process.stdout is not None
        async for piece in process.stdout:
            output += piece
            if len(output) > MAX_OUTPUT_BYTES:
                raise self._broken(f"it wrote more than {MAX_OUTPUT_BYTES} bytes")
        return output

    def _decision(self, on: Moment, output: bytes) -> Any:
        if not output.strip():
            return None
        try:
            said = json.loads(output)
        except (ValueError, RecursionError) as error:
            raise self._broken(f"what it wrote is not JSON: {error}") from None
        if said == {}:
            return None
        kinds: dict[str, Any] = {**_KEYS[on]}
        if on != "after_action":
            kinds["end"] = lambda detail: EndRun("stopped", "hook", detail)
        if not isinstance(said, dict) or len(said) != 1 or (key := next(iter(said))) not in kinds:
            raise self._broken(f"it wants one key of {', '.join(kinds)}")
        if not isinstance(said[key], str):
            raise self._broken(f"{key} is no text")
        return kinds[key](said[key])

    def _broken(self, what: str) -> HookFailed:
        return HookFailed(f"the hook {self.name!r} is broken: {what}", "mend it, or take it out of the configuration")
