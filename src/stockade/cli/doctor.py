"""`stockade doctor`: what this machine can enforce, each line tried live."""

import json
from typing import Any

import anyio
import click
from rich.text import Text

from stockade import assemble
from stockade.cli import flags
from stockade.cli.alive import is_alive
from stockade.cli.console import results
from stockade.cli.safe import one_line
from stockade.settings import load

NOT_SAFE = 4


@click.command("doctor", short_help="What this machine can enforce, tried live.")
@click.option("--clean", is_flag=True, help="Only remove what killed runs left behind, and say what it was.")
@flags.offered(flags.JSON)
def command(*, clean: bool, **values: Any) -> int:
    """What this machine can enforce: escapes are tried from inside a real sandbox. Status 4: it is not safe here."""
    front = load(flags.given(values)).front
    if clean:
        return _clean(json_lines=front.json_lines)
    findings = assemble.probe()
    safe = all(finding.held for finding in findings if finding.required)
    if front.json_lines:
        for finding in findings:
            print(json.dumps(finding.model_dump()))
        return 0 if safe else NOT_SAFE
    console = results(plain=front.plain)
    for finding in findings:
        missing = ("NOT HELD", "bold red") if finding.required else ("not here", "yellow")
        mark = ("held", "green") if finding.held else missing
        console.print(
            Text.assemble(
                (f"{mark[0]:>8}  ", mark[1]), one_line(finding.name), ("  " + one_line(finding.tried), "dim")
            ),
            soft_wrap=True,
        )
        for words in (finding.cause, finding.way_out):
            if words and not finding.held:
                console.print(Text(f"          {one_line(words)}"), soft_wrap=True)
    verdict = (
        ("the default sandbox holds here", "bold green")
        if safe
        else ("NOT SAFE: Stockade will not run here", "bold red")
    )
    console.print(Text(*verdict), soft_wrap=True)
    return 0 if safe else NOT_SAFE


async def _recorded() -> set[str]:
    store = assemble.open_store()
    try:
        return {run.run_id for run in await store.runs()}
    finally:
        await store.close()


def _clean(*, json_lines: bool) -> int:
    for line in assemble.clean(anyio.run(_recorded), is_alive):
        print(json.dumps({"type": "clean", "message": line}) if json_lines else one_line(line))
    return 0
