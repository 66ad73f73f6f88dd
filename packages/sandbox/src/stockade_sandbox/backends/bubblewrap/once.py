"""One program in a sandbox of its own, begun and ended without an event loop: for a policy that prepares nothing before
it and needs nobody to serve it meanwhile. Most of what `stockade sandbox exec` costs is what it imports.
"""

import os
from collections.abc import Sequence
from functools import partial

from stockade_sandbox.agent.child import channel, death
from stockade_sandbox.agent.jobs import AgentConfig, ProgramJob, Sink
from stockade_sandbox.agent.once import Conversation
from stockade_sandbox.backends.bubblewrap.argv import Launch
from stockade_sandbox.backends.bubblewrap.explain import last_line, start_failure
from stockade_sandbox.backends.bubblewrap.process import ProcessTree, start_tree
from stockade_sandbox.backends.host_info import fresh_sandbox_uid, host_facts
from stockade_sandbox.errors import SandboxDied, SandboxFailed
from stockade_sandbox.limits.cgroups import ended_for_memory, make_groups, places, remove_groups, sweep
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import ExecResult

_DEATH_NOTE_S = 2.0


def suits(policy: Policy) -> bool:
    """Whether `run_once` can hold it: no folders, no copies, no network, no root, this machine's own system."""
    prepared = (policy.folders, policy.copies, policy.lent, policy.system, policy.rootfs, policy.root)
    return policy.network.mode == "none" and not any(prepared) and not policy.authorities


def run_once(
    policy: Policy,
    argv: Sequence[str],
    source: int | None,
    sink: Sink,
    stop_fd: int,
) -> ExecResult:
    """As BubblewrapSandbox.exec, in one that is made for it and leaves nothing, with its input from the descriptor
    `source` and its output to `sink` as it comes. Blocks, until `stop_fd` is readable.

    Raises agent.once.Stopped then; ActionFailed, PolicyNotEnforceable, SandboxFailed and SandboxDied.
    """
    assert suits(policy)
    job = ProgramJob(AgentConfig.of(policy), 1, argv, b"" if source is None else None, None, 0, sink)
    host, uid, where = host_facts(), fresh_sandbox_uid(), places()
    sweep(where)
    groups = make_groups(policy.limits, where)
    chain: ProcessTree | None = None
    ours, theirs = channel()
    try:
        folders = tuple(str(folder) for folder in groups.folders)
        launch = Launch(os.getpid(), os.geteuid() if uid is None else uid, cgroups=folders)
        with theirs:
            chain = start_tree(policy, (), host, theirs, launch)
        agent = Conversation(ours, stop_fd)
        try:
            agent.start(AgentConfig.of(policy, groups.controllers))
        except SandboxFailed as error:
            status = _status(chain)
            raise start_failure(chain.stderr(), status) if chain.stderr() or status else error from error
        try:
            return agent.perform(job, source, partial(ended_for_memory, groups))
        except SandboxDied as error:
            raise death(error, _status(chain), last_line(chain.stderr())) from error
    finally:
        ours.close()
        if chain is not None:
            chain.end()
        if left := remove_groups(groups):
            raise SandboxFailed(f"a control group could not be removed: {left[0]}", "`stockade doctor --clean`")


def _status(chain: ProcessTree) -> int | None:
    """How it ended; None when it does not."""
    return chain.status() if chain.wait(_DEATH_NOTE_S) else None
