"""`stockade code` as it is typed. All that does the work is imported when it begins, so that `--help` stays quick."""

from typing import Any

import click

from stockade.cli import flags
from stockade.cli.model_flags import SAMPLING

_MODEL = (
    click.option("--model", default=None, metavar="PROVIDER/NAME", help="Which model; auto picks one and says why."),
    click.option("--timeout", type=float, default=None, metavar="S", help="Seconds for all of it; 0 is unlimited."),
    click.option("--max-tokens", type=int, default=None, metavar="N", help="Tokens of prompts and answers together."),
    click.option("--max-cost", type=float, default=None, metavar="USD", help="What it may cost."),
    *SAMPLING,
    *flags.LOADING,
)


@click.command("code", short_help="Write Python, run it, mend it until its checks pass.")
@click.argument("task", required=False)
@click.option("--tests", metavar="FILE", help="A Python file of tests: assert lines, test functions, a TestCase.")
@click.option("--example", multiple=True, metavar="TEXT", help='A worked example: "f(2) == 4", or a doctest.')
@click.option("--candidates", type=int, metavar="N", help="Programs asked for at once, of which the best goes on.")
@click.option("--repairs", type=int, metavar="N", help="Repairs of a program before it is written anew; 3.")
@click.option("--fresh-starts", type=int, metavar="N", help="How often it may be written anew; 1.")
@click.option("--attempt-timeout", type=float, metavar="S", help="Seconds for one run of a program; 10.")
@click.option("--output", metavar="NAME", help="Its file in the folder; solution.py.")
@click.option("--serve", metavar="HOST:PORT", help="Answer GET /health and POST /query instead of doing one task.")
@click.option("--api-key", envvar="STOCKADE_API_KEY", metavar="KEY", help="The key that clients of --serve must give.")
@click.option("--at-once", type=click.IntRange(1, 64), metavar="N", help="Queries that --serve works on at once; 1.")
@flags.offered(_MODEL, flags.SANDBOX, flags.CHANGES, flags.SHOWN, flags.STORE)
def command(task: str | None, **values: Any) -> int:
    """Write a Python program for TASK, which may also be - (standard input) or @FILE; run it, mend it.

    It is done when the program runs and passes its checks: --tests, --example, and the worked examples in TASK. The
    program goes to stdout, and as a change to --folder. Exit status: 0 done, 1 no program passed, 2 usage, 3 stopped,
    4 sandbox or machine, 5 model, 130 Ctrl-C.
    """
    from stockade.cli import coding

    return coding.begin(task, flags.given(values))
