"""`run --help` on one screen, and `stockade help TOPIC` for what it leaves out."""

import textwrap
from collections.abc import Callable, Iterable, Mapping

import click

from stockade.cli.flags import ON_A_SCREEN
from stockade.cli.lazy import load
from stockade.core.errors import UsageError, did_you_mean
from stockade.core.settings import Field, FrontSettings, LoadSettings, RunSettings, SamplingSettings, fields

_SHORT = {"bot": "-b, --bot", "model": "-m, --model", "option": "-o", "verbose": "-v", "go_on": "-c, --continue"}
_MODELS = """\
auto                the default: what `model` says in a configuration, else a server that runs here, else
                    what was pulled, else the embedded default; a line says which, and why
embedded/NAME       from `stockade model list`; run here, offline
gguf/PATH           any GGUF file; a path that begins with / is written with two
SERVER/NAME         a model of a server: SERVERS
                    openai is any compatible one, by OPENAI_BASE_URL
scripted/FILE.jsonl answers from a file, for tests

`stockade model probe NAME` tries one. What each is good for: docs/models.md."""
_NETWORK = """\
--net none          the default: nothing is sent or received, not to this machine either
--net HOST,...      HOST, HOST:PORT or *.SUFFIX, separated by commas; through a proxy that records each request
--net open          every public name; never this machine's own addresses, or private ones

More: docs/network.md."""
_STATUSES = """\
0    done, and verified where --check was given
1    gave up, a check failed, no answer fitted --output-schema, or a conflict at apply
2    usage or configuration
3    stopped by a budget, a loop, unreadable answers, or the user
4    sandbox or machine
5    model
130  interrupted

`stockade sandbox exec`, `wrap`: the program's own; 124 time-out, 125 sandbox."""
TOPICS = ("settings", "sampling", "sandbox", "models", "network", "statuses")
_SANDBOX = ("folder", "copy", "sandbox", "image", "toolchain", "net", "memory", "disk", "processes", "command_timeout",
            "streams", "env", "credential", "ca", "ssh_agent", "redact")  # fmt: skip


class Brief(click.Command):
    """Its flags by what they are for, without a line on each. All others are taken too, and told by `help settings`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        takes = {one.name: one for one in self.get_params(ctx) if isinstance(one, click.Option)}
        takes = {one.opts[-1].removeprefix("--").replace("-", "_"): one for one in takes.values()} | takes
        formatter.write("\n")
        for title, keys in ON_A_SCREEN.items():
            words = [_word(key, takes[key]) for key in keys if key in takes]
            if title == "More":
                words.append("any other setting, as -o temperature=0.2")
            for number, line in enumerate(_wrapped("   ".join(words), formatter.width - 9)):
                formatter.write(f"{title if not number else '':<9}{line}\n")
        formatter.write(f"\nstockade help TOPIC: {', '.join(TOPICS)}\n")


class Passing(click.Command):
    """One whose arguments are another command: a flag that we do not know may be one of that."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if load("cli.ui.failures:renamed")(error):
                raise
            way_out = f"put -- before the command: {ctx.command_path} [FLAGS] -- COMMAND ..."
            raise UsageError(error.format_message(), way_out) from error


class Kin(click.Command):
    """Of a bot's own command: the flags that only it has. Those of `stockade run` are named, and told there."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        group = ctx.find_root().command
        run = group.get_command(ctx, "run") if isinstance(group, click.Group) else None
        shared = {"help", *(one.name for one in (run.params if run is not None else ()))}
        takes = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        records = [one.get_help_record(ctx) for one in takes if one.name not in shared]
        formatter.write("\n")
        formatter.write_dl([record for record in records if record is not None])
        formatter.write("\nAnd flags of `stockade run`, which mean the same: stockade run --help\n")


def _word(key: str, option: click.Option) -> str:
    name = _SHORT.get(key, f"--{key.replace('_', '-')}")
    takes = option.metavar or ("|".join(option.type.choices) if isinstance(option.type, click.Choice) else "")
    return f"{name} {takes}".rstrip().replace(" ", "\xa0")


def _wrapped(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


@click.command("help", short_help="Help topics: settings, sampling, sandbox, models, network, statuses.")
@click.argument("topic", required=False)
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> int:
    """What may be set, and how. TOPIC: settings, sampling, sandbox, models, network, statuses; or a command."""
    top = ctx.find_root()
    if topic is None:
        click.echo(top.get_help())
        return 0
    if topic not in TOPICS:
        group = top.command
        assert isinstance(group, click.Group)
        found = group.get_command(top, topic)
        if found is None:
            every = f"topics are {', '.join(TOPICS)}, and the commands"
            raise UsageError(
                f"there is no topic {topic!r}", did_you_mean(topic, (*TOPICS, *group.list_commands(top)), every)
            )
        click.echo(found.get_help(click.Context(found, info_name=topic, parent=top)))
        return 0
    click.echo(_TEXTS[topic]() if topic in _TEXTS else _settings(_KEYS[topic]()))
    return 0


def _named(keys: Iterable[str]) -> Mapping[str, Field]:
    every = {**fields(RunSettings), **fields(FrontSettings)}
    return {key: every[key] for key in keys}


def _models() -> str:
    return _MODELS.replace("SERVERS", ", ".join(load("models.providers:SERVERS")))


_TEXTS: dict[str, Callable[[], str]] = {
    "models": _models, "network": lambda: _NETWORK, "statuses": lambda: _STATUSES,
}  # fmt: skip
_KEYS: dict[str, Callable[[], Mapping[str, Field]]] = {
    "settings": lambda: {**fields(RunSettings), **fields(FrontSettings)},
    "sampling": lambda: {**fields(SamplingSettings), **fields(LoadSettings)},
    "sandbox": lambda: _named(_SANDBOX),
}


def _settings(found: Mapping[str, Field]) -> str:
    """A line each, in the order of the definitions."""
    head = "-o KEY=VALUE, KEY in a stockade.toml, STOCKADE_KEY in the environment; most have a flag --key too.\n"
    rows = [head]
    for key, field in found.items():
        takes = field.setting.metavar or ("true|false" if field.kind is bool else "")
        lines = textwrap.wrap(field.setting.help, 80) or [""]
        rows.append(
            f"{key:<20} {takes}".rstrip() if len(takes) > 8 else f"{key:<20} {takes:<8} {lines.pop(0)}".rstrip()
        )
        rows += [f"{'':<29} {line}" for line in lines]
    return "\n".join(rows)
