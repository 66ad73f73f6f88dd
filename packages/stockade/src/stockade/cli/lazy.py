"""Commands and what they need are imported on use, through `load` and nowhere else, so that `--help` stays quick."""

import importlib
from collections.abc import Mapping
from typing import Any

Table = Mapping[str, tuple[str, str]]
"""Name -> (module of this package and name in it, by default `command`; what it is for).

A test holds the second against the command itself.
"""

COMMANDS: Table = {
    "chat": ("begin:chat", "Talk with a bot, in one live sandbox."),
    "run": ("begin:run", "Run a bot on a task."),
    "plan": ("begin:plan", "A bot that plans, and acts when you authorise it."),
    "auto": ("begin:auto", "The autonomous Shell bot, which lives in a folder."),
    "shell": ("sandbox_exec:shell", "A prompt of your own in the sandbox."),
    "code": ("begin:code", "Write Python, run it, mend it until its checks pass."),
    "runs": ("commands:runs", "Runs on record: show, go on, go back, export, apply."),
    "diff": ("changes:diff", "What a run changed and nobody decided on yet."),
    "apply": ("changes:apply", "Write a run's changes to the folder."),
    "undo": ("changes:undo", "Take back what was applied."),
    "discard": ("changes:discard", "Throw a run's changes away."),
    "sandbox": ("commands:sandbox", "Commands in the sandbox, without a model."),
    "tool": ("tool", "Tools: listing, trying and building them."),
    "doctor": ("begin:doctor", "What this machine can enforce, tried live."),
    "model": ("model", "Models: what is here, pulling and serving them."),
    "mcp": ("mcp", "An MCP server: bots, sandboxes and records for any MCP client."),
    "approvals": ("approvals", "What bots may always do without asking, and where."),
    "trust": ("trust", "Let a folder's stockade.toml or .mcp.json be read."),
    "bots": ("bots", "The bots that exist, with their permissions."),
    "completion": ("completion", "Completion for bash, zsh or fish."),
    "help": ("help", "A topic: settings, sampling, sandbox, models, network, statuses."),
}
RUNS: Table = {
    "apply": ("changes:apply", "Write a run's changes to the folder."),
    "diff": ("changes:diff", "What a run changed and nobody decided on yet."),
    "discard": ("changes:discard", "Throw a run's changes away."),
    "export": ("export:export", "A run in another form: a report, JSON, a recording."),
    "list": ("listing:list_runs", "Past runs, newest first."),
    "prune": ("runs:prune", "Remove old runs for good, after showing which."),
    "replay": ("replay:replay", "Show a run again as it went, or do it again and compare."),
    "resume": ("resume:resume", "Go on with a run: after a crash, a stop, or with a new task."),
    "rewind": ("resume:rewind", "Go back to a turn of a run and on from there, as a new run."),
    "rm": ("runs:rm", "Remove runs for good: record, folders, undo."),
    "search": ("listing:search", "Runs by words of their tasks, answers and commands."),
    "show": ("runs:show", "A whole run as it went, from its record."),
    "undo": ("changes:undo", "Take back what was applied."),
}
SANDBOX: Table = {
    "exec": ("sandbox_exec:exec_", "One program, with its own output and exit status."),
    "health": ("sandbox_serve:health", "Whether another machine serves sandboxes."),
    "list": ("sandbox_kept:list_sandboxes", "Sandboxes that are kept."),
    "rm": ("sandbox_kept:rm", "End sandboxes that are kept."),
    "serve": ("sandbox_serve:serve", "Sandboxes of this machine for another one."),
}


def load(where: str) -> Any:
    """What `module:name` names, imported now."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"stockade.{module}"), name)
