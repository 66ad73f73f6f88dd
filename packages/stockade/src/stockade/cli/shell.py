"""`stockade shell`: the autonomous Shell bot, and the folder that it lives in."""

from pathlib import Path
from typing import Any

import click

from stockade.cli import flags


class _StartIsMeant(click.Group):
    """`stockade shell --goal X` is `stockade shell start --goal X`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group("shell", cls=_StartIsMeant, short_help="The autonomous Shell bot, which lives in a folder.")
def command() -> None:
    """The autonomous Shell bot: a model that lives in a shell, with a goal, until a budget or Ctrl-C ends it.

    It lives in a folder, the workspace, and rules itself by three files in it: `goal`, `system.md` (its part of the
    prompt) and `config.json` (its sampling). `stockade shell` alone is `stockade shell start`.
    """


_WHERE = click.option("--workspace", metavar="PATH", help="The folder that it lives in; ./workspace by default.")


@command.command("start", short_help="Start the bot; its workspace is made when it is not there.")
@_WHERE
@click.option("--goal", metavar="TEXT", help="The goal while there is no file `goal`; else $STOCKADE_GOAL.")
@click.option("--own-goal/--no-own-goal", default=None, help="Whether it may set its goal.")
@click.option("--own-prompt/--no-own-prompt", default=None, help="Whether it may write a part of its prompt.")
@click.option("--own-sampling/--no-own-sampling", default=None, help="Whether it may set how it is sampled.")
@click.option("--intro/--no-intro", default=None, help="Whether six scripted actions come first.")
@click.option("--show-intro", is_flag=True, help="Show them; else $LLAMA_SHOW_INTRO.")
@click.option("--cast", type=click.Path(path_type=Path), metavar="FILE", help="Keep the terminal as an asciicast.")
@flags.offered(flags.LIVING, flags.SANDBOX, flags.SHOWN, flags.STORE)
def start(workspace: str | None, goal: str | None, show_intro: bool, cast: Path | None, **values: Any) -> int:
    """Start the bot in its workspace, which is made when it is not there.

    It writes to the workspace itself and to nothing else. To go on with it: stockade runs resume. Exit status: 3
    stopped by a budget, 4 sandbox or machine, 5 model, 130 Ctrl-C.
    """
    from stockade.cli.living import live

    return live(workspace, goal, flags.given(values), show_intro=show_intro, cast=cast)


@command.command("reset", short_help="Begin anew with an empty workspace.")
@_WHERE
def reset(workspace: str | None) -> int:
    """Remove everything in the workspace and begin anew with the template."""
    from stockade.cli.living import begin_anew

    return begin_anew(workspace)
