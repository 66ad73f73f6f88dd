"""`stockade plan TASK`: a bot that thinks aloud, and does each action when the person authorises it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import click

from stockade.cli import flags
from stockade.cli.failures import say
from stockade.core.errors import UsageError

if TYPE_CHECKING:
    from stockade.core.ports import RunStore
    from stockade.plugins.planner.bot import Overrides
    from stockade.runtime.factory import Prepared
    from stockade.runtime.settings import Settings

ASKED = "Enter the task, with as much detail as possible: "
FOLLOW_UP = "A follow-up task for {name} (Enter: none): "
WARNING = (
    "continuous mode: nobody looks at an action before it is done. What holds is the sandbox, the folder's mode and"
    " the network rule"
)
PLANNING = (
    click.option("--fast-model", metavar="PROVIDER/NAME", help="A second model, for the profile and for summaries."),
    click.option("--ai-name", metavar="NAME", help="How the bot is called."),
    click.option("--ai-role", metavar="ROLE", help="Who the bot is; with --ai-name, no profile is made for the task."),
    click.option("--constraint", multiple=True, metavar="TEXT", help="What it must not do."),
    click.option("--resource", multiple=True, metavar="TEXT", help="What it has."),
    click.option("--best-practice", multiple=True, metavar="TEXT", help="How it works well."),
    click.option("--override-directives", is_flag=True, help="These stand in place of the others of their kind."),
    click.option("-y", "--skip-reprompt", is_flag=True, help="Do not ask whether to continue with the settings."),
    click.option("-c", "--continuous", is_flag=True, help="Do every action without asking."),
    click.option(
        "-l", "--continuous-limit", type=click.IntRange(1, 9999), metavar="N", help="With -c: so many, then ask again."
    ),
)

CHECK = flags.BOT[-1:]


@click.command("plan", short_help="A bot that plans, and acts when you authorise it.")
@click.argument("task", required=False)
@flags.offered(PLANNING, flags.LIVING, CHECK, flags.TOOLS, flags.SANDBOX, flags.CHANGES, flags.SHOWN, flags.STORE)
def command(task: str | None, **values: Any) -> int:
    """Plan and do TASK, which may also be - (standard input) or @FILE, and is asked for when it is not given.

    A profile is made for the task: name, role, constraints, resources, best practices. You may change it. Then, turn by
    turn, the bot says what it thinks, and you answer: y lets it act, y -N lets it act N times, n stops and saves,
    anything else is feedback for the bot. Where nobody can be asked, nothing is done without -c.

    The fast model's server is where FAST_LLAMAFILE_URL says (FAST_ before any variable of a provider). Exit status
    as of `stockade run`.
    """
    from stockade.cli.console import can_ask
    from stockade.runtime import records

    settings = flags.load(flags.given(values))
    asks = not (settings.front.json_lines or settings.front.quiet) and can_ask(no_input=settings.front.no_input)
    _check(values, asks=asks)
    task = _task(task, asks=asks)
    settings = settings.model_copy(update={"options": settings.options.model_copy(update={"task": task})})
    store = records.open_store(settings.options.store)
    try:
        return _carry_out(settings, store, values, asks=asks)
    finally:
        anyio.run(store.close)


def _check(values: dict[str, Any], *, asks: bool) -> None:
    if values["continuous_limit"] is not None and not values["continuous"]:
        raise UsageError("--continuous-limit is for --continuous only", "give -c too")
    if values["continuous"]:
        say(WARNING)
    elif not asks:
        raise UsageError(
            "nobody is there to authorise actions: this is no terminal, or nothing is to be asked",
            "-c -l N does N actions without asking, -c does all",
        )


def _task(task: str | None, *, asks: bool) -> str:
    if task is not None:
        from stockade.cli.task import read_task

        return read_task(task)
    if not asks:
        raise UsageError("there is no task", "stockade plan TASK")
    while not (line := _line(ASKED)):
        pass
    return line


def _line(question: str) -> str:
    """click.Abort at the end of input."""
    from stockade.cli.typed import typed

    line = anyio.run(partial(typed, question, fresh=True))
    if line is None:
        raise click.Abort
    return line


def _carry_out(settings: "Settings", store: "RunStore", values: dict[str, Any], *, asks: bool) -> int:
    """The run, and those that follow as long as the person has a task for the same bot."""
    from stockade.cli.console import progress
    from stockade.cli.profile import Reviser
    from stockade.cli.run import carry_out
    from stockade.plugins.planner.bot import PLANNER, Planner
    from stockade.runtime import factory
    from stockade.runtime.spec import Objects

    overrides = _overrides(values)
    front = settings.front
    reviser = Reviser(
        progress(plain=front.plain),
        asks=asks and not values["skip_reprompt"] and not overrides.any,
        shows=not (front.json_lines or front.quiet),
    )
    bot = PLANNER.model_copy(update={"bot": Planner(overrides, reviser.revise)})
    granted = values["continuous_limit"] if values["continuous"] else 0
    spec = settings.options.model_copy(update={"objects": Objects(bot=bot), "granted": granted})
    prepared: list[Prepared] = []

    async def prepare(**callbacks: Any) -> "Prepared":
        made = await factory.prepare(spec, store, **callbacks, attended=asks)
        prepared.append(made)
        return made

    status = carry_out(settings, store, prepare)
    while status == 0 and asks and prepared and (task := _follow_up(prepared[0])):
        status = carry_out(settings, store, _again(settings, store, prepared[0].started.run_id, task))
    return status


def _follow_up(prepared: "Prepared") -> str:
    """Empty when there is none."""
    from stockade.cli.thoughts import profile_name

    try:
        return _line(FOLLOW_UP.format(name=profile_name(prepared.started) or "the bot"))
    except click.Abort:
        return ""


def _again(settings: "Settings", store: "RunStore", run_id: str, task: str) -> Callable[..., Any]:
    from stockade.runtime.resume import Going, prepare_again

    history = tuple(anyio.run(store.events, run_id))
    return partial(prepare_again, Going(run_id, history, task, {}), settings.options, store)


def _overrides(values: dict[str, Any]) -> "Overrides":
    from stockade.plugins.planner.bot import Overrides

    return Overrides(
        name=_short(values["ai_name"]),
        role=_short(values["ai_role"]),
        constraints=values["constraint"] or (),
        resources=values["resource"] or (),
        best_practices=values["best_practice"] or (),
        replace=bool(values["override_directives"]),
    )


def _short(text: str | None) -> str | None:
    return text.strip() or None if text is not None else None
