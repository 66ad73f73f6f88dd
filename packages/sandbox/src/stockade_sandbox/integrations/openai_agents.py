"""A sandbox behind the shell tool of the OpenAI Agents SDK: `ShellTool(executor=StockadeShell(box))`, with an open
`stockade_sandbox.Sandbox`.
"""

from functools import partial

from agents import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult

from stockade_sandbox import AsyncSandbox, Sandbox

DEFAULT_TIMEOUT_S = 120.0
MAX_OUTPUT = 1 << 20


class StockadeShell:
    """`box` stays its maker's. Commands of one call run one after the other, each by a bash of its own in the working
    folder, until one is not done in time. `timeout` in seconds, where a call says none; a call may say less.

    A sandbox that has ended raises SandboxDied: it is nothing that a command said.
    """

    def __init__(self, box: Sandbox, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        self._box, self._timeout = box, timeout

    async def __call__(self, request: ShellCommandRequest) -> ShellResult:
        action, found = request.data.action, list[ShellCommandOutput]()
        most = action.max_output_length
        bound = MAX_OUTPUT if most is None else max(0, min(most, MAX_OUTPUT))
        limit = min(action.timeout_ms / 1000, self._timeout) if action.timeout_ms else self._timeout
        for command in action.commands:
            run = partial(AsyncSandbox.exec, argv=["bash", "-c", command], timeout=limit, max_output=bound)
            done = await self._box.awaited(run)
            ending = ShellCallOutcome(type="timeout") if done.timed_out else ShellCallOutcome("exit", done.exit_code)
            errors = done.stderr.decode(errors="replace")
            found.append(ShellCommandOutput(stdout=done.text, stderr=errors, outcome=ending, command=command))
            if done.timed_out:
                break
        return ShellResult(output=found, max_output_length=most)
