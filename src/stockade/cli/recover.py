"""`stockade runs recover`: what is readable of a damaged record, in a new one."""

import json
from typing import Any

import anyio
import click

from stockade import assemble
from stockade.cli import flags
from stockade.cli.failures import say
from stockade.settings import load


@click.command("recover", short_help="Save what is readable of a damaged record.")
@click.option("--output", "-o", metavar="FILE", help="The new record; by default the old one's name and .recovered.")
@flags.offered(flags.JSON, flags.STORE)
def recover(output: str | None, **values: Any) -> int:
    """Write what is readable of a damaged record to a new one, which --store can then name. The old one stays as it is.

    A run comes back up to its first event that is lost; what follows it is written to FILE.loose.jsonl. Status 1 when
    something was lost.
    """
    settings = load(flags.given(values))
    done = anyio.run(assemble.recover_store, settings.options.store, output)
    if settings.front.json_lines:
        print(json.dumps(done.model_dump()))
    elif done.new is None:
        say("nothing in it could be read: it holds no run", "name another record with --store")
    else:
        say(f"{done.runs} runs with {done.events} events are in {done.new}", f"stockade runs list --store {done.new}")
        if done.loose_file is not None:
            say(f"{done.loose} events that follow a gap are in {done.loose_file}")
        if done.damaged or done.lost_outputs:
            say(f"lost: {done.damaged} events are damaged, {done.lost_outputs} large outputs are missing or changed")
    return 1 if done.new is None or done.loose or done.damaged or done.lost_outputs else 0
