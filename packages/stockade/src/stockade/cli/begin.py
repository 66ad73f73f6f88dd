"""`stockade run`, `code`, `plan`, `auto` and `doctor` as they are typed.

All that does the work is imported when it begins, so that `--help` stays quick.
"""

from pathlib import Path
from typing import Any

import click

from stockade.cli import flags
from stockade.cli.help import Brief
from stockade.cli.lazy import load
from stockade.core.errors import UsageError

CONTINUE = click.option("-c", "--continue", "go_on", is_flag=True, help="Go on with the last run of this folder.")


@click.command("run", cls=Brief, short_help="Run a bot on a task.")
@click.argument("task", required=False)
@CONTINUE
@click.option("--worktree", is_flag=True, help="Work in a new git worktree of the folder, on a branch of its own.")
@flags.offered(flags.BOT, flags.TOOLS, flags.SANDBOX, flags.HERE, flags.CHANGES, flags.SHOWN, flags.STORE)
def run(task: str | None, *, go_on: bool, worktree: bool, **values: Any) -> int:
    """Run a bot on TASK, which may also be - (standard input) or @FILE, and is asked for on a terminal.

    The answer goes to stdout, all else to stderr. Changes are shown at the end, and applied only when you say so.
    """
    if go_on and worktree:
        raise UsageError("--worktree begins a run, -c goes on with one", "leave one of them out")
    more = {} if go_on else {"worktree": worktree}
    return int(load("cli.resume:go_on" if go_on else "cli.run:begin")(task, flags.given(values), **more))


@click.command("chat", cls=Brief, short_help="Talk with a bot, in one live sandbox.")
@click.argument("task", required=False)
@CONTINUE
@flags.offered(flags.BOT, flags.TOOLS, flags.SANDBOX, flags.HERE, flags.LOOK, flags.STORE)
def chat(task: str | None, *, go_on: bool, **values: Any) -> int:
    """Talk with a bot in one live sandbox: its shell, its variables and what runs in it stay between messages.

    What you type while it works is told to it before its next turn; Ctrl-C interrupts it, Ctrl-D leaves, /help lists
    the rest. Changes are looked at by /diff and /apply at any point. Status 0 when you leave.
    """
    return int(load("cli.chat:begin")(task, flags.given(values), go_on=go_on))


_CODE_MODEL: flags.Flags = (*map(flags.flag, ("model", *flags.BOUNDS[1:])), *flags.SAMPLING, *flags.LOADING)


@click.command("code", short_help="Write Python, run it, mend it until its checks pass.")
@click.argument("task", required=False)
@click.option("--tests", metavar="FILE", help="A Python file of tests: assert lines, test functions, a TestCase.")
@click.option("--example", multiple=True, metavar="TEXT", help='A worked example: "f(2) == 4", or a doctest.')
@click.option("--repairs", type=int, metavar="N", help="Repairs of a program before it is written anew; 3.")
@click.option("--fresh-starts", type=int, metavar="N", help="How often it may be written anew; 1.")
@click.option("--attempt-timeout", type=float, metavar="S", help="Seconds for one run of a program; 10.")
@click.option("--output", metavar="NAME", help="Its file in the folder; solution.py.")
@click.option("--serve", metavar="HOST:PORT", help="Answer GET /health and POST /query instead of doing one task.")
@click.option("--api-key", envvar="STOCKADE_API_KEY", metavar="KEY", help="The key that clients of --serve must give.")
@click.option("--at-once", type=click.IntRange(1, 64), metavar="N", help="Queries that --serve works on at once; 1.")
@flags.offered(_CODE_MODEL, flags.SANDBOX, flags.HERE, flags.CHANGES, flags.SHOWN, flags.STORE)
def code(task: str | None, **values: Any) -> int:
    """Write a Python program for TASK, which may also be - (standard input) or @FILE; run it, mend it.

    It is done when the program runs and passes its checks: --tests, --example, and the worked examples in TASK. The
    program goes to stdout, and as a change to --folder. Exit status: 0 done, 1 no program passed, 2 usage, 3 stopped,
    4 sandbox or machine, 5 model, 130 Ctrl-C.
    """
    return int(load("cli.code:begin")(task, flags.given(values)))


PLANNING: flags.Flags = (
    flags.flag("fast_model"),
    click.option("--ai-name", metavar="NAME", help="How the bot is called."),
    click.option("--ai-role", metavar="ROLE", help="Who the bot is; with --ai-name, no profile is made for the task."),
    click.option("--constraint", multiple=True, metavar="TEXT", help="What it must not do."),
    click.option("--resource", multiple=True, metavar="TEXT", help="What it has."),
    click.option("--best-practice", multiple=True, metavar="TEXT", help="How it works well."),
    click.option(
        "--override-directives", is_flag=True, help="Those three stand in place of the profile's own, not beside them."
    ),
    click.option("-y", "--skip-reprompt", is_flag=True, help="Do not ask whether to continue with the settings."),
    click.option("-c", "--continuous", is_flag=True, help="Do every action without asking."),
    click.option(
        "-l", "--continuous-limit", type=click.IntRange(1, 9999), metavar="N", help="With -c: so many, then ask again."
    ),
)


@click.command("plan", short_help="A bot that plans, and acts when you authorise it.")
@click.argument("task", required=False)
@flags.offered(PLANNING, flags.LIVING, flags.CHECK, flags.TOOLS, flags.SANDBOX, flags.HERE, flags.CHANGES, flags.SHOWN,
               flags.STORE)  # fmt: skip
def plan(task: str | None, **values: Any) -> int:
    """Plan and do TASK, which may also be - (standard input) or @FILE, and is asked for when it is not given.

    A profile is made for the task: name, role, constraints, resources, best practices. You may change it. Then, turn by
    turn, the bot says what it thinks, and you answer: y lets it act, y -N lets it act N times, n stops and saves,
    anything else is feedback for the bot. Where nobody can be asked, nothing is done without -c.

    The fast model's server is where FAST_LLAMAFILE_URL says (FAST_ before any variable of a provider). Exit status
    as of `stockade run`.
    """
    return int(load("cli.plan:begin")(task, values))


@click.command("auto", short_help="The autonomous Shell bot, which lives in a folder.")
@click.option("--workspace", metavar="PATH", help="The folder that it lives in; ./workspace by default.")
@click.option("--goal", metavar="TEXT", help="The goal while there is no file `goal`; else $STOCKADE_GOAL.")
@click.option("--show-intro", is_flag=True, help="Show the scripted actions of --intro; else $LLAMA_SHOW_INTRO.")
@click.option("--cast", type=click.Path(path_type=Path), metavar="FILE", help="Keep the terminal as an asciicast.")
@flags.offered(flags.OWN, flags.LIVING, flags.SANDBOX, flags.SHOWN, flags.STORE)
def auto(workspace: str | None, goal: str | None, show_intro: bool, cast: Path | None, **values: Any) -> int:
    """The autonomous Shell bot: a model that lives in a shell, with a goal, until a budget or Ctrl-C ends it.

    It lives in a folder, the workspace, which is made when it is not there, writes to that and to nothing else, and
    rules itself by three files in it: `goal`, `system.md` (its part of the prompt) and `config.json` (its sampling). To
    go on with it: stockade runs resume. Exit status: 3 stopped by a budget, 4 sandbox or machine, 5 model, 130 Ctrl-C.
    """
    given = flags.given(values)
    return int(load("cli.shell:begin")(workspace, goal, given, show_intro=show_intro, cast=cast))


@click.command("doctor", short_help="What this machine can enforce, tried live.")
@click.option("--clean", is_flag=True, help="Only remove what killed runs left behind, and say what it was.")
@flags.offered(flags.JSON)
def doctor(*, clean: bool, **values: Any) -> int:
    """What this machine can enforce: escapes are tried from inside a real sandbox. Status 4: it is not safe here."""
    return int(load("cli.doctor:begin")(flags.given(values), clean=clean))
