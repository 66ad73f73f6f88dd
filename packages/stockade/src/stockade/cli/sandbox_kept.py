"""`stockade sandbox list` and `rm`: sandboxes that outlive their maker (keep=True in Python)."""

import json
import time

import anyio
import click

from stockade.cli.ui.console import results
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError
from stockade_sandbox.keeping import Held, KeptSandbox, find, id_of, kept, look


@click.command("list", short_help="List kept sandboxes.")
@click.option("--json", "json_lines", is_flag=True, help="One JSON object a line.")
def list_sandboxes(json_lines: bool) -> int:
    """Sandboxes that outlive their maker, of this user: made from Python with keep=True."""
    console = results(plain=True)
    for base in kept():
        line = _facts(id_of(base), anyio.run(look, base))
        if json_lines:
            print(json.dumps(line))
        else:
            console.print(one_line("  ".join(_shown(line))), markup=False, highlight=False, soft_wrap=True)
    return 0


def _facts(name: str, held: Held | None) -> dict[str, object]:
    """`expires_s`: in so many seconds, when nobody uses it before; None while somebody does."""
    if held is None:
        return {"id": name, "state": "holder gone"}
    return {
        "id": name,
        "state": "running" if held.alive else "ended",
        "sandbox": held.backend,
        "age_s": round(time.time() - held.made),
        "clients": held.clients,
        "expires_s": None if held.clients else round(held.expires_s - held.idle_s),
        "folders": [f"{rule.host}:{rule.mode}" for rule in held.policy.folders],
    }


def _shown(line: dict[str, object]) -> list[str]:
    words = [f"{line['id']}  {line['state']}"]
    if "sandbox" not in line:
        return [*words, f"stockade sandbox rm {line['id']} removes what is left"]
    words += [str(line["sandbox"]), f"{line['age_s']} s old", f"{line['clients']} attached"]
    if line["expires_s"] is not None:
        words.append(f"ends in {line['expires_s']} s")
    folders = line["folders"]
    return [*words, *(folders if isinstance(folders, list) else [])]


@click.command("rm", short_help="End kept sandboxes.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All of them.")
def rm(ids: tuple[str, ...], everything: bool) -> int:
    """End sandboxes that are kept, and throw away what was written in them and not applied."""
    if bool(ids) == everything:
        raise UsageError("sandbox rm takes ids or --all", "see `stockade sandbox list`")
    chosen = [KeptSandbox(base) for base in kept()] if everything else [find(name) for name in ids]
    for one in chosen:
        anyio.run(one.destroy)
        say(f"removed {id_of(one.base)}")
    return 0
