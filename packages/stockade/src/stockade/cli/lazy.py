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
    "plan": ("begin:plan", "Plans step by step and asks before each action."),
    "auto": ("begin:auto", "An autonomous, long-running shell agent in a folder of its own."),
    "wrap": ("begin:wrap", "Another agent or any program in the sandbox, reviewed after."),
    "shell": ("sandbox_exec:shell", "An interactive shell in the sandbox."),
    "code": ("begin:code", "Write Python, run it, fix it until the checks pass."),
    "runs": ("commands:runs", "Past runs: show, resume, rewind, export, apply."),
    "diff": ("changes:diff", "Pending changes of a run (a git patch when piped)."),
    "apply": ("changes:apply", "Apply a run's changes to the folder."),
    "undo": ("changes:undo", "Undo an apply, byte for byte."),
    "discard": ("changes:discard", "Discard a run's changes."),
    "batch": ("commands:batch", "Many runs at once, gone on with where they stopped."),
    "eval": ("eval", "Evaluation sets that installed packages hold."),
    "sandbox": ("commands:sandbox", "Commands in the sandbox, without a model."),
    "tool": ("tool", "Tools: list, try and build them."),
    "doctor": ("begin:doctor", "Check what this machine can enforce, with live escape tests."),
    "model": ("model", "Models: list, choose, pull and serve them."),
    "serve": ("serve", "An HTTP API: runs for programs and machines."),
    "mcp": ("mcp", "An MCP server: bots, sandboxes and records for any MCP client."),
    "acp": ("acp", "A bot for editors: the Agent Client Protocol."),
    "approvals": ("approvals", "What bots may do without asking, and where."),
    "trust": ("trust", "Trust a folder's stockade.toml or .mcp.json."),
    "bots": ("bots", "List bots and their permissions."),
    "completion": ("completion", "Shell completion for bash, zsh or fish."),
    "help": ("help", "Help topics: settings, sampling, sandbox, models, network, statuses."),
}
RUNS: Table = {
    "apply": ("changes:apply", "Apply a run's changes to the folder."),
    "attach": ("background:attach", "See a detached run live, and answer its questions."),
    "copy": ("copying:copy", "Copy runs to another record: a file, or PostgreSQL."),
    "diff": ("changes:diff", "Pending changes of a run (a git patch when piped)."),
    "discard": ("changes:discard", "Discard a run's changes."),
    "export": ("export:export", "Export a run: a report, JSON, a recording."),
    "list": ("listing:list_runs", "Past runs, newest first."),
    "logs": ("background:logs", "What a run has shown so far; -f follows it to its end."),
    "prune": ("runs:prune", "Remove old runs for good, after showing which."),
    "replay": ("replay:replay", "Show a run again at its own speed, or repeat it and compare."),
    "resume": ("resume:resume", "Go on with a run: after a crash, a stop, or with a new task."),
    "rewind": ("resume:rewind", "Go back to a turn of a run and on from there, as a new run."),
    "rm": ("runs:rm", "Remove runs for good: record, folders, undo."),
    "search": ("searching:search", "Search tasks, answers and commands of past runs."),
    "show": ("showing:show", "Show a whole run, step by step."),
    "stop": ("background:stop", "End runs that are under way, in order."),
    "undo": ("changes:undo", "Undo an apply, byte for byte."),
}
BATCH: Table = {
    "run": ("batch:run", "Run the tasks of a file; called again, it goes on."),
    "export": ("batch:export", "The results as a log of inspect_ai."),
    "retry": ("batch:retry", "Do tasks of a batch again."),
    "status": ("batch:status", "How far a batch is."),
    "compare": ("batch:compare_", "Compare two batches on the tasks that both have."),
    "stop": ("batch:stop", "End a batch that is under way, in order."),
    "table": ("batch:table", "What became of each task."),
}
SANDBOX: Table = {
    "exec": ("sandbox_exec:exec_", "Run one program; its output and exit status are passed on."),
    "health": ("sandbox_serve:health", "Check whether another machine serves sandboxes."),
    "list": ("sandbox_kept:list_sandboxes", "List kept sandboxes."),
    "rm": ("sandbox_kept:rm", "End kept sandboxes."),
    "serve": ("sandbox_serve:serve", "Serve sandboxes to other machines."),
}


def load(where: str) -> Any:
    """What `module:name` names, imported now."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"stockade.{module}"), name)
