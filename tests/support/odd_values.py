"""`python -m tests.support.odd_values SEED COUNT`: commands with a value that nobody means, each in its own process.

Every option and argument of every command is given each of ODD; COUNT of these are drawn by the seed, or all with 0. A
quarter as many commands more have one of ODD for one of VARIABLES in their environment. Below the current folder, which
is empty, with a home of its own. A line of JSON for each that ended with a trace.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from stockade.cli import commands, main

ODD = (
    "", "-1", "0", "1", "9" * 20, "nan", "inf", "1e400", "/dev/null", "/proc/self/mem", "a" * 5000, "\udcff\udcfe",
    "..", "~nobody/x", "[::1]:99999", "\x1b[2J", "a\nb", "{}", "[" * 5000, "=", "a=b", "@x", "@/dev/null", "%s{0}",
    "a" * 300, "~nosuch/x", "loop", "loop/x",
    "none", "http://[", "localhost:0", "x:y:z", "..:rw", "t.jsonl", "*", "\u202e", "true", ",", ", ,", "1,2", ":",
)  # fmt: skip
VARIABLES = (
    "HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR", "PATH",
    "TERM", "COLUMNS", "LANG", "LC_ALL", "TZ", "PAGER", "SHELL", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "DOCKER_HOST", "SSH_AUTH_SOCK", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OLLAMA_HOST",
    "LLAMA_SERVER_URL",
)  # fmt: skip
PATIENCE_S, GRACE_S = 10, 5
Case = tuple[dict[str, str], list[str]]
_SIGNS = ("this is a bug in Stockade", "Traceback (most recent call last)")


def leaves(
    command: click.Command, context: click.Context, path: list[str]
) -> Iterator[tuple[list[str], click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from leaves(found, click.Context(found, parent=context, info_name=name), [*path, name])
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command


def drawn(seed: int, count: int) -> list[Case]:
    """What is in the environment, and the arguments."""
    found, surrounded = list[Case](), list[Case]()
    for path, command in leaves(commands.stockade, click.Context(commands.stockade, info_name="stockade"), []):
        options = [one for one in command.params if isinstance(one, click.Option) and not one.is_flag]
        given = ["t.jsonl" if "batch" in path else "x" for one in command.params if isinstance(one, click.Argument)]
        model = ["--model", "scripted/s.jsonl"] if any("--model" in one.opts for one in options) else []
        found += [({}, [*path, *model, *given, option.opts[0], value]) for option in options for value in ODD]
        for number in range(len(given)):
            found += [({}, [*path, *model, "--", *given[:number], value, *given[number + 1 :]]) for value in ODD]
        surrounded += [({name: value}, [*path, *model, *given]) for name in VARIABLES for value in ODD]
    for cases in (found, surrounded):
        random.Random(seed).shuffle(cases)
    return found[: count or None] + surrounded[: count // 4 or None]


def call(variables: dict[str, str], arguments: list[str], log: Path) -> None:
    """To its end, which some have to be told to come to."""
    if not (pid := os.fork()):
        os.environ.update(variables)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(to, 1)
        os.dup2(to, 2)
        sys.argv = ["stockade", *arguments]
        try:
            main()
        finally:
            os._exit(0)
    for number, patience_s in ((signal.SIGTERM, PATIENCE_S), (signal.SIGKILL, GRACE_S)):
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if os.waitpid(pid, os.WNOHANG)[0]:
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
                return
            time.sleep(0.01)
        os.killpg(pid, number)
    os.waitpid(pid, 0)


def work(seed: int, count: int) -> int:
    """How many were called."""
    Path("s.jsonl").write_text(json.dumps({"content": json.dumps({"action": "finish", "answer": "x"})}) + "\n")
    Path("t.jsonl").write_text('{"id": "a", "task": "t"}\n')
    Path("loop").symlink_to("loop")
    todo, log = drawn(seed, count), Path.home() / "said"
    for variables, arguments in todo:
        call(variables, arguments, log)
        said = log.read_text(errors="replace")
        if any(sign in said for sign in _SIGNS):
            shown = {name: value[:60] for name, value in variables.items()} | {"": [one[:60] for one in arguments]}
            print(json.dumps({"case": shown, "said": said[-2000:]}), flush=True)
    return len(todo)


if __name__ == "__main__":
    print(work(int(sys.argv[1]), int(sys.argv[2])), file=sys.stderr)
