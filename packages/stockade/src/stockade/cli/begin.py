"""`stockade run`, `code`, `plan`, `auto` and `doctor` as they are typed.

All that does the work is imported when it begins, so that `--help` stays quick.
"""

from pathlib import Path
from typing import Any

import click

from stockade.cli import flags
from stockade.cli.help import Brief, Kin, Passing
from stockade.cli.lazy import load
from stockade.core.errors import UsageError

CONTINUE = click.option("-c", "--continue", "go_on", is_flag=True, help="Go on with the last run of this folder.")
WORKTREE = click.option(
    "--worktree", is_flag=True, help="Work in a new git worktree of the folder, on a branch of its own."
)
DETACH = click.option(
    "--detach", is_flag=True, help="In the background; RUN is printed, for runs logs, attach and stop."
)


@click.command("run", cls=Brief, short_help="Run a bot on a task.")
@click.argument("task", required=False)
@CONTINUE
@WORKTREE
@DETACH
@flags.offered(
    flags.OUTPUT,
    flags.BOT,
    flags.BEST_OF,
    flags.TOOLS,
    flags.SANDBOX,
    flags.HERE,
    flags.CHANGES,
    flags.SHOWN,
    flags.STORE,
)
def run(task: str | None, *, go_on: bool, worktree: bool, detach: bool, **values: Any) -> int:
    """Run a bot on TASK, which may also be - (standard input) or @FILE, and is asked for on a terminal.

    The answer goes to stdout, all else to stderr. Changes are shown at the end, and applied only when you say so.
    """
    return int(_begun("cli.run:begin", task, flags.given(values), go_on=go_on, worktree=worktree, detach=detach))


@click.command("chat", cls=Brief, short_help="Talk with a bot, in one live sandbox.")
@click.argument("task", required=False)
@CONTINUE
@flags.offered(flags.BOT, flags.TOOLS, flags.SANDBOX, flags.HERE, flags.NOTIFY, flags.LOOK, flags.STORE)
def chat(task: str | None, *, go_on: bool, **values: Any) -> int:
    """Talk with a bot in one live sandbox: its shell, its variables and what runs in it stay between messages.

    What you type while it works is told to it before its next turn; Ctrl-C interrupts it, Ctrl-D leaves, /help lists
    the rest. Changes are looked at by /diff and /apply at any point. Status 0 when you leave.
    """
    return int(load("cli.chat:begin")(task, flags.given(values), go_on=go_on))


@click.command("code", cls=Kin, short_help="Write Python, run it, fix it until the checks pass.")
@click.argument("task", required=False)
@click.option("--tests", metavar="FILE", help="A Python file of tests: assert lines, test functions, a TestCase.")
@click.option("--example", multiple=True, metavar="TEXT", help='A worked example: "f(2) == 4", or a doctest.')
@click.option("--repairs", type=int, metavar="N", help="Repairs of a program before it is written anew; 3.")
@click.option("--fresh-starts", type=int, metavar="N", help="How often it may be written anew; 1.")
@click.option("--attempt-timeout", type=flags.Number(0), metavar="S", help="Seconds for one run of a program; 10.")
@click.option("--stdin", metavar="TEXT|@FILE", help="What the program reads from its standard input; empty if not.")
@click.option("--output", metavar="NAME", help="Its file in the folder; solution.py.")
@CONTINUE
@WORKTREE
@DETACH
@flags.offered(flags.MODEL, flags.CHECK, flags.APPROVE, flags.SANDBOX, flags.HERE, flags.CHANGES, flags.SHOWN,
               flags.STORE)  # fmt: skip
def code(task: str | None, *, go_on: bool, worktree: bool, detach: bool, **values: Any) -> int:
    """Write a Python program for TASK, run it, and fix it until the checks pass: --tests, --example, the examples in
    TASK, and --check. The program goes to stdout, and into the folder as a change. Without TASK, on a terminal, it asks
    for one after the other. Status 1: no program passed; else as of `stockade run`.
    """
    return int(_begun("cli.code:begin", task, flags.given(values), go_on=go_on, worktree=worktree, detach=detach))


def _begun(where: str, task: str | None, given: dict[str, Any], *, go_on: bool, worktree: bool, detach: bool) -> int:
    """A new run, or the last one of this folder."""
    if go_on and worktree:
        raise UsageError("--worktree begins a run, -c goes on with one", "leave one of them out")
    more = {} if go_on else {"worktree": worktree}

    def go(**how: Any) -> int:
        return int(load("cli.resume:go_on" if go_on else where)(task, given, **more, **how))

    return int(load("cli.background:detach")(go, given)) if detach else go()


PLANNING: flags.Flags = (
    click.option("--ai-name", metavar="NAME", help="How the bot is called."),
    click.option("--ai-role", metavar="ROLE", help="Who the bot is; with --ai-name, no profile is made for the task."),
    click.option("--constraint", multiple=True, metavar="TEXT", help="What it must not do."),
    click.option("--resource", multiple=True, metavar="TEXT", help="What it has."),
    click.option("--best-practice", multiple=True, metavar="TEXT", help="How it works well."),
    click.option("--override-directives", is_flag=True, default=None, help="Those three replace the profile's own."),
    click.option("-y", "--skip-reprompt", is_flag=True, default=None, help="Do not ask whether the profile is right."),
    click.option("--continuous", is_flag=True, default=None, help="Do every action without asking."),
    click.option(
        "-l", "--continuous-limit", type=click.IntRange(1, 9999), metavar="N",
        help="Do so many actions without asking, then ask again.",
    ),
)  # fmt: skip


@click.command("plan", cls=Kin, short_help="Plans step by step and asks before each action.")
@click.argument("task", required=False)
@flags.offered(PLANNING, (CONTINUE, WORKTREE, DETACH), flags.LIVING, flags.CHECK, flags.TOOLS,
               flags.SANDBOX, flags.HERE, flags.CHANGES, flags.SHOWN, flags.STORE)  # fmt: skip
def plan(task: str | None, *, go_on: bool, worktree: bool, detach: bool, **values: Any) -> int:
    """Plan and do TASK, and ask you before each action. A profile is made for the task, which you may change.

    You answer y to let the bot act, y -N for N actions, n to stop and save, g to change its goals; other words are
    feedback for it. Where nobody can be asked, nothing is done without --continuous. Exit status as of `stockade run`.
    """
    return int(_begun("cli.plan:begin", task, flags.given(values), go_on=go_on, worktree=worktree, detach=detach))


@click.command("auto", cls=Kin, short_help="An autonomous, long-running shell agent in a folder of its own.")
@click.argument("task", required=False)
@click.option("--workspace", metavar="PATH", help="The folder that it lives in; ./workspace by default.")
@click.option("--goal", metavar="TEXT", help="TASK, as a flag; without either $STOCKADE_GOAL.")
@click.option("--show-intro", is_flag=True, help="Show the scripted actions of --intro; else $LLAMA_SHOW_INTRO.")
@click.option("--cast", type=click.Path(path_type=Path), metavar="FILE", help="Keep the terminal as an asciicast.")
@flags.offered(flags.OWN, flags.LIVING, flags.TOOLS, flags.SANDBOX, flags.CHANGES, flags.SHOWN, flags.STORE)
def auto(
    task: str | None, *, workspace: str | None, goal: str | None, show_intro: bool, cast: Path | None, **values: Any
) -> int:
    """A model that lives in a shell, with TASK as its goal, until a budget or Ctrl-C ends it.

    It writes to its workspace and to nothing else, and rules itself by three files in it: `goal`, `system.md` (its part
    of the prompt) and `config.json` (its sampling). To go on with it: stockade runs resume. Exit status as of
    `stockade run`; 3 when a budget ended it.
    """
    own = {"workspace": workspace, "goal": goal, "show_intro": show_intro, "cast": cast}
    return int(load("cli.shell:begin")(task, flags.given(values), **own))


@click.command("wrap", cls=Passing, short_help="Another agent or any program in the sandbox, reviewed after.")
@click.argument("argv", nargs=-1, metavar="-- CMD ...", type=click.UNPROCESSED)
@click.option("-p", "--prompt", metavar="TEXT", help="Let it do this by itself, as a bot; also - or @FILE.")
@click.option("--home", metavar="NAME", help="A home of its own that stays, and is not yours; new ones are made.")
@click.option("--cast", type=click.Path(path_type=Path), metavar="FILE", help="Keep the terminal as an asciicast.")
@flags.offered((flags.flag("model", "Which model it asks, by the name it has there."), flags.flag("timeout"),
                flags.flag("max_turns")), flags.CHECK, flags.SANDBOX, flags.HERE, flags.CHANGES,
               flags.LOOK, flags.STORE, (flags.OPTION,))  # fmt: skip
def wrap(argv: tuple[str, ...], prompt: str | None, *, home: str | None, cast: Path | None, **values: Any) -> int:
    """Run claude, codex, gemini, opencode, aider, goose, pi, qwen, copilot, vibe, or any program, in the sandbox.

    Your terminal is passed through to it, as it is; piped, its streams are. What it wrote to the folder, by whatever
    means, is reviewed at its end as after `stockade run`. Exit status: the program's own; 1 where --check
    fails; 124 time-out, 125 sandbox.

    \b
    stockade wrap --home work -- claude
    """
    return int(load("cli.wrap:begin")(argv, prompt, flags.given(values), home=home, cast=cast))


@click.command("doctor", short_help="Check what this machine can enforce, with live escape tests.")
@click.option("--clean", is_flag=True, help="Only remove what killed runs left behind, and say what it was.")
@flags.offered(flags.JSON)
def doctor(*, clean: bool, **values: Any) -> int:
    """Check what this machine can enforce, with live escape tests in a real sandbox. Status 4: it is not safe here."""
    return int(load("cli.doctor:begin")(flags.given(values), clean=clean))
