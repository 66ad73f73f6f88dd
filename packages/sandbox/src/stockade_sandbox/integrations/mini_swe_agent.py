"""A sandbox as the environment of mini-swe-agent: `environment_class:` in its configuration takes
`stockade_sandbox.integrations.mini_swe_agent.StockadeEnvironment`.
"""

import platform
from dataclasses import replace
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel, ConfigDict

from stockade_sandbox import Sandbox
from stockade_sandbox.policy import policy_of

_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_MERGED = ("sh", "-c", 'exec "$@" 2>&1', "sh")
MAX_OUTPUT = 10 << 20


class StockadeEnvironmentConfig(BaseModel):
    """`folder`: PATH, PATH:ro or PATH:overlay, seen as /workspace; None is an empty one. `net`: names of hosts. `cwd`
    is a path inside, `timeout` of a command in seconds. `apply`: what was written goes to the folder when the agent
    submits, which ends the sandbox; not what would run there by itself. `image`: a `Policy.rootfs`.
    """

    model_config = ConfigDict(extra="forbid")

    cwd: str = ""
    env: dict[str, str] = {}
    timeout: int = 30
    folder: str | None = None
    net: tuple[str, ...] = ()
    apply: bool = False
    image: str | None = None
    backend: str = "bubblewrap"


class StockadeEnvironment:
    """One sandbox, from here to `cleanup` or the end of the process. `box` has its changes: `env.box.apply()`.

    A sandbox that has ended raises SandboxDied: it is nothing that a command said.
    """

    def __init__(self, *, config_class: type[StockadeEnvironmentConfig] = StockadeEnvironmentConfig, **given: Any):
        self.config = config_class(**given)
        policy = policy_of(self.config.folder, self.config.net)
        limits = replace(policy.limits, command_timeout_s=0.0)
        self.box = Sandbox(policy=replace(policy, limits=limits, rootfs=self.config.image), backend=self.config.backend)
        self.box.__enter__()

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        words = [*_MERGED, "bash", "-c", str(action.get("command", ""))]
        limit = timeout or self.config.timeout
        done = self.box.exec(words, cwd=cwd or self.config.cwd or None, env=self.config.env, timeout=limit,
                             max_output=MAX_OUTPUT)  # fmt: skip
        said = (done.stdout + done.stderr).decode(errors="replace")
        if done.timed_out:
            why = f"An error occurred while executing the command: it was not done in {limit} s"
            return {"output": said, "returncode": -1, "exception_info": why,
                    "extra": {"exception_type": "TimeoutExpired", "exception": why}}  # fmt: skip
        lines = said.lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == _SUBMIT and done.exit_code == 0:
            submission = "".join(lines[1:])
            if self.config.apply:
                self.box.apply()
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})
        return {"output": said, "returncode": done.exit_code, "exception_info": ""}

    def get_template_vars(self, **given: Any) -> dict[str, Any]:
        """Nothing of the host but its kernel: neither its name nor its variables."""
        system = {**platform.uname()._asdict(), "node": "stockade"}
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), system, given)
        return merged

    def serialize(self) -> dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config}}

    def cleanup(self) -> None:
        """Ends it; what was not applied is thrown away."""
        self.box.__exit__(None, None, None)
