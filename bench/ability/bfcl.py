"""Calls of the Berkeley Function Calling Leaderboard by each of our ways to answer: `python -m bench.ability.bfcl`.

    pip install --no-deps bfcl-eval==2026.3.23

The data is Apache 2.0 (Patil et al. 2025, gorilla/berkeley-function-call-leaderboard), read from the installed package.
Each sample's functions are the tools of an MCP server in the sandbox, and the first answer of the model that can be
read is compared with the set's possible answers, as its own checker does: every call, in any order, each argument one
of those allowed, texts without regard to case, blanks and ``,./-_*^``. Nothing else is on offer but the end of the run.
"""

import argparse
import json
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import track

from bench.ability.arms import STOCKADE
from bench.ability.proxy import KEY
from bench.client import ROOT, source_path
from stockade.extend import data_of
from stockade.fleet.statistics import wilson

PACKAGE, DATA = "bfcl-eval", "bfcl_eval/data"
CATEGORIES = ("simple_python", "multiple", "parallel")
PROTOCOLS = ("native", "json", "fenced")
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    match asked["method"]:
        case "initialize":
            found = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                     "serverInfo": {"name": "bfcl", "version": "1"}}
        case "tools/list":
            found = {"tools": json.loads(sys.argv[1])}
        case _:
            found = {"content": [{"type": "text", "text": "done"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": found}), flush=True)
"""
BOT = """
prompt = "You answer by calling tools. Call every tool that the request needs, all in your first answer."
permission = "ro"
tools = ["finish"]
"""
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
_BLANK = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True)
class Sample:
    id: str
    words: str
    tools: list[dict[str, Any]]
    possible: list[dict[str, dict[str, list[Any]]]]


def samples(category: str, limit: int, seed: int) -> list[Sample]:
    """UsageError says what to install."""
    rows, answers = (
        [json.loads(line) for line in data_of(PACKAGE, f"{DATA}/{part}BFCL_v4_{category}.json").open()]
        for part in ("", "possible_answer/")
    )
    possible = {row["id"]: row["ground_truth"] for row in answers}
    drawn = random.Random(seed).sample(rows, limit)
    return [
        Sample(row["id"], row["question"][0][-1]["content"], [_tool(one) for one in row["function"]],
               [{_name(name): given for name, given in call.items()} for call in possible[row["id"]]])
        for row in drawn
    ]  # fmt: skip


def _name(name: str) -> str:
    """As the set names them for models whose tools may have no dot in their names."""
    return name.replace(".", "_")


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": _name(function["name"]),
        "description": function["description"],
        "inputSchema": _schema(function["parameters"]),
    }


def _schema(of: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {key: of[key] for key in ("description", "enum", "required", "default") if key in of}
    if of.get("type") != "any":
        made["type"] = _TYPES.get(of["type"], of["type"])
    if "properties" in of:
        made["properties"] = {name: _schema(one) for name, one in of["properties"].items()}
    if "items" in of:
        made["items"] = _schema(of["items"])
    return made


def right(calls: Sequence[tuple[str, dict[str, Any]]], possible: list[dict[str, dict[str, list[Any]]]]) -> bool:
    """Whether each possible call was made, and no other."""
    left = list(calls)
    for wanted in possible:
        ((name, given),) = wanted.items()
        found = next((call for call in left if call[0] == name and _fits(call[1], given)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _fits(given: dict[str, Any], possible: dict[str, list[Any]]) -> bool:
    """An argument may be left out where `""` is among what it may be."""
    return given.keys() <= possible.keys() and all(
        any(_same(given[name], one) for one in values) if name in given else "" in values
        for name, values in possible.items()
    )


def _same(given: Any, wanted: Any) -> bool:
    if isinstance(given, str) and isinstance(wanted, str):
        return _plain(given) == _plain(wanted)
    if isinstance(given, dict) and isinstance(wanted, dict):
        return _fits(given, wanted)
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(_same, given, wanted))
    return (type(given) is type(wanted) and given == wanted) or (
        {type(given), type(wanted)} == {int, float} and given == wanted
    )


def _plain(text: str) -> str:
    return _BLANK.sub("", text).lower().replace("'", '"')


def first_calls(sample: Sample, model: str, server: str, protocol: str) -> list[tuple[str, dict[str, Any]]]:
    """What the model called in its first answer that could be read. ValueError where there was no run."""
    with tempfile.TemporaryDirectory(prefix="bfcl-") as home:
        mcp, bot = Path(home) / "mcp.json", Path(home) / "bot.toml"
        run = {"command": "/usr/bin/python3", "args": ["-c", SERVER, json.dumps(sample.tools)]}
        mcp.write_text(json.dumps({"mcpServers": {"f": run}}))
        bot.write_text(BOT)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": source_path(ROOT), "LANG": "C.UTF-8", "HOME": home,
                       "OPENAI_BASE_URL": server, "OPENAI_API_KEY": KEY}  # fmt: skip
        argv = [*STOCKADE, "run", sample.words, "--no-folder", "--bot", str(bot), "--mcp", str(mcp), "--model", model,
                "--json", "--no-input", "--max-turns", "1", "--seed", "1", "--answers", protocol,
                "-o", "small_models=false"]  # fmt: skip
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=900)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not events or events[-1]["type"] != "result":
        raise ValueError(f"{sample.id}: {done.stderr[-400:]}")
    return list(_called(events))


def _called(events: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for event in events:
        for step in event["answer"]["steps"] if event["type"] == "answer_understood" else ():
            if step["action"]["tool"] == "tool_call":
                yield step["action"]["name"].removeprefix("f__"), step["action"]["arguments"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8080/v1", help="OpenAI-compatible; key: OPENAI_API_KEY")
    parser.add_argument("--model", default="openai/qwen")
    parser.add_argument("--categories", nargs="+", choices=CATEGORIES, default=CATEGORIES)
    parser.add_argument("--answers", nargs="+", default=PROTOCOLS)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--into", type=Path, help="a line for each answer is added there")
    given = parser.parse_args()
    print("| category | answers | samples | right | 95 % interval |\n|---|---|---|---|---|")
    for category in given.categories:
        drawn = samples(category, given.limit, given.seed)
        for protocol in given.answers:
            with ThreadPoolExecutor(given.at_once) as pool:
                answers = pool.map(
                    partial(first_calls, model=given.model, server=given.server, protocol=protocol), drawn
                )
                made = list(track(answers, f"{category} {protocol}", len(drawn)))
            solved = [right(calls, sample.possible) for calls, sample in zip(made, drawn, strict=True)]
            if given.into:
                with given.into.open("a") as file:
                    for sample, calls, good in zip(drawn, made, solved, strict=True):
                        file.write(json.dumps([sample.id, protocol, good, calls]) + "\n")
            low, high = wilson(sum(solved), len(solved))
            share = f"{100 * low:.1f} to {100 * high:.1f} %"
            print(f"| {category} | {protocol} | {len(solved)} | **{sum(solved)}** | {share} |", flush=True)


if __name__ == "__main__":
    main()
