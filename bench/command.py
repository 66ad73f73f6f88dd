"""The command line of the benchmark: runs everyone in turn, draws the tables, writes the JSON."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import contenders, peers, start, table
from bench.client import Contender, measure, server
from bench.figures import Measured, row


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/overhead.py", description="What a turn costs, beside others.")
    parser.add_argument("--turns", default="10,50,200", help="lengths of the runs, at least two (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="everyone once a round (default: %(default)s)")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="the other agents too")
    parser.add_argument("--only", metavar="WORD", help="beside the floor, only those whose name holds WORD")
    parser.add_argument("--base", type=Path, metavar="CHECKOUT", help="beside the floor, this version and another")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args(arguments)


def everyone(*, with_peers: bool, only: str | None) -> list[Contender]:
    """The floor first; all others are measured against it."""
    found = [*contenders.OURS, *(peers.installed(peer) for peer in peers.PEERS if with_peers)]
    return [one for one in found if one is contenders.FLOOR or not only or only in one.name]


def rounds_of(field: Sequence[Contender], turns: Sequence[int], rounds: int) -> dict[str, list[dict[int, Measured]]]:
    """Interleaved: in each round everyone runs once at each length, so that load meets all alike."""
    results: dict[str, list[dict[int, Measured]]] = {one.name: [] for one in field}
    with server() as address:
        for one in field:
            measure(one, 1, address, f"warm-{field.index(one)}")
        for number in range(rounds):
            for place, one in enumerate(field):
                note(f"round {number + 1} of {rounds}: {one.name}")
                runs = {n: measure(one, n, address, f"{number}-{place}-{n}") for n in turns}
                results[one.name].append(runs)
    return results


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Where and when, for the record."""
    one, five, _ = os.getloadavg()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "kernel": os.uname().release,
        "processors": os.cpu_count(),
        "python": sys.version.split()[0],
        "load": [round(one, 1), round(five, 1)],
    }


def main() -> None:
    chosen = options()
    figures: dict[str, Any] = {"machine": machine()}
    turns = sorted({int(number) for number in chosen.turns.split(",")})
    field = everyone(with_peers=chosen.peers, only=chosen.only)
    if chosen.base:
        field = [contenders.FLOOR, *contenders.pair(chosen.base)]
    results = rounds_of(field, turns, chosen.rounds)
    rows = [row(one.name, results[one.name], results[field[0].name]) for one in field]
    if chosen.base:
        print(f"{table.beside([results[one.name] for one in field[1:]])}\n")
    starts = start.measure()
    print(f"{table.overhead(rows)}\n\n{start.drawn(starts)}")
    figures |= {"rounds": chosen.rounds, "rows": [asdict(one) for one in rows]}
    figures["start"] = [asdict(one) for one in starts]
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
