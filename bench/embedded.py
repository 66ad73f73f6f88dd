"""The embedded server: what asking it through Stockade costs, what sharing it brings, how much of a prompt is cached.

    python bench/embedded.py MODEL.gguf [--rounds N] [--llama-server PATH] [--json FILE]

Every figure is a ratio of two things done in turn in one run, so that load meets both alike.

- *through us*: `llama.cpp's own server` is xllamacpp.Server, the same build, in a process of its own with the same
  threads, slots and GOMP_SPINCOUNT, asked by a bare socket; *embedded* is EmbeddedModel, supervisor and
  adapter included. Both get the same greedy question; tokens a second from the question to the last token, as the one
  who asks sees them.
- *at once*: four users of one embedded server, each with a question of its own, over one user alone. All answers have
  the full length, or the figure would say how long they were.
- *drafts*: users of whom none, some or all have a file written anew with one word changed, of a server that guesses
  what stands in the prompt already (`ngram-simple`) over one that does not: the time until all have ended, and each
  kind's own.
- *cached*: the usage on record of a run of ten turns by the real command: what share of the prompt tokens of turns 2 to
  10 came from the cache, and of those that were there to be cached (all but what came new at the end).
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from stockade.core.messages import Message, ModelRequest, Sampling
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.launch_spec import usable_cores
from stockade.models.settings import ModelSettings

OWN_SERVER = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[4])
if "drafts" in sys.argv:
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
params.port, params.ui = 0, False
server = xllamacpp.Server(params)
print(server.listening_address.rpartition(":")[2], flush=True)
sys.stdin.read()
"""
WINDOW, SLOTS = 1024, 4
SCRIPT_TURNS = 14


def question(text: str, tokens: int) -> ModelRequest:
    return ModelRequest(
        messages=(Message(role="system", content="You write Python."), Message(role="user", content=text)),
        sampling=Sampling(temperature=0, max_tokens=tokens),
    )


def words(number: int) -> str:
    """Something that is answered at full length. Asked for a story that never ends, the 1.5B declined in 14 tokens."""
    return f"Write a Python class that models machine number {number}, with many methods and docstrings."


def rewriting(number: int) -> str:
    """A file to be written anew, which is in the question nearly word by word."""
    lines = "".join(f"    def step_{n}(self) -> int:\n        return {n * number} + self.size\n" for n in range(8))
    return (
        f"class Machine{number}:\n{lines}\nWrite this class again with `self.size` renamed to `self.width`. Only code."
    )


@contextmanager
def own_server(path: Path, *, drafts: bool = False) -> Iterator[int]:
    """llama.cpp's own server of the same build; its port."""
    arguments = [sys.executable, "-c", OWN_SERVER, str(path), str(WINDOW * SLOTS), str(SLOTS), str(usable_cores())]
    arguments += ["drafts"] if drafts else []
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "GOMP_SPINCOUNT": "1000"},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def bare(port: int, request: ModelRequest) -> float:
    """Tokens a second by a plain socket: one POST, its stream read to the end."""
    body = json.dumps({
        "messages": [message.model_dump(include={"role", "content"}) for message in request.messages],
        "temperature": 0, "max_tokens": request.sampling.max_tokens, "stream": True, "cache_prompt": True,
        "stream_options": {"include_usage": True},
    }).encode()  # fmt: skip
    head = (
        b"POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    started, said = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head % len(body) + body)
        while piece := connection.recv(1 << 16):
            said += piece
    took = time.monotonic() - started
    last = [json.loads(line[6:]) for line in said.splitlines() if line.startswith(b"data: {")][-1]
    return float(last["usage"]["completion_tokens"]) / took


async def asked(model: EmbeddedModel, request: ModelRequest, count: list[int] | None = None) -> float:
    """Tokens a second through us; how many goes to `count`."""
    started = time.monotonic()
    answer = await model.ask(request, lambda _: None)
    if count is not None:
        count.append(answer.usage.completion_tokens)
    return answer.usage.completion_tokens / (time.monotonic() - started)


async def through_us(path: Path, settings: ModelSettings, rounds: int, tokens: int) -> dict[str, Any]:
    ours: list[float] = []
    theirs: list[float] = []
    with own_server(path) as port:
        async with EmbeddedModel(path, "m", settings=settings, trusted=True) as model:
            for number in range(rounds + 1):
                request = question(words(number), tokens)
                pair = [lambda: asked(model, request), lambda: anyio.to_thread.run_sync(bare, port, request)]  # noqa: B023
                order = (0, 1) if number % 2 else (1, 0)
                found = {place: await pair[place]() for place in order}
                if number:  # the first one pages the weights in
                    ours.append(found[0])
                    theirs.append(found[1])
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {"ours": ours, "theirs": theirs, "ratios": ratios, "ratio": statistics.median(ratios)}


async def at_once(path: Path, settings: ModelSettings, rounds: int, tokens: int) -> dict[str, Any]:
    ratios: list[float] = []
    rates: list[tuple[float, float]] = []
    users = [EmbeddedModel(path, "m", settings=settings, trusted=True) for _ in range(SLOTS)]
    async with users[0], users[1], users[2], users[3]:
        assert len({user.server.pid for user in users}) == 1
        await asked(users[0], question("Hello.", 4))
        for number in range(rounds):
            alone = await asked(users[0], question(words(100 + number), tokens))
            count: list[int] = []
            started = time.monotonic()
            async with anyio.create_task_group() as group:
                for place, user in enumerate(users):
                    group.start_soon(asked, user, question(words(200 + number * SLOTS + place), tokens), count)
            together = sum(count) / (time.monotonic() - started)
            if sum(count) < tokens * SLOTS:
                raise SystemExit(f"bench/embedded.py: answers of {count} tokens, not of {tokens} each: ask for fewer")
            rates.append((alone, together))
            ratios.append(together / alone)
    return {"rates": rates, "ratios": ratios, "ratio": statistics.median(ratios)}


async def with_drafts(path: Path, rounds: int, tokens: int) -> dict[str, Any]:
    """By how many of how many repeat: seconds with drafts over seconds without, of all, of those and of the others."""
    found: dict[str, Any] = {}
    with own_server(path, drafts=True) as guessing, own_server(path) as plain:
        for port in (guessing, plain):
            await anyio.to_thread.run_sync(bare, port, question("Hello.", 4))  # which pages the weights in
        for users, repeating in ((1, 0), (1, 1), (SLOTS, 0), (SLOTS, 2), (SLOTS, SLOTS)):
            ratios: list[dict[str, float]] = []
            for number in range(rounds):
                questions = [question((rewriting if place < repeating else words)(1 + number * SLOTS + place), tokens)
                             for place in range(users)]  # fmt: skip
                order = (guessing, plain) if number % 2 else (plain, guessing)
                took = {port: await _each(port, questions) for port in order}
                kinds = {"all": slice(None), "repeating": slice(repeating), "others": slice(repeating, None)}
                ratios.append({name: max(took[guessing][part]) / max(took[plain][part])
                               for name, part in kinds.items() if took[plain][part]})  # fmt: skip
            found[f"{repeating} of {users}"] = ratios
            medians = ", ".join(f"{name} {statistics.median(one[name] for one in ratios):.2f}" for name in ratios[0])
            print(f"drafts, {repeating} of {users} repeat: times as long as without: {medians}", flush=True)
    return found


async def _each(port: int, questions: list[ModelRequest]) -> list[float]:
    """Seconds until each has its answer, all asked at once."""
    started, ended = time.monotonic(), [0.0] * len(questions)

    async def one(place: int) -> None:
        await anyio.to_thread.run_sync(bare, port, questions[place])
        ended[place] = time.monotonic() - started

    async with anyio.create_task_group() as group:
        for place in range(len(questions)):
            group.start_soon(one, place)
    return ended


def cached(path: Path, llama_server: str | None) -> dict[str, Any]:
    """A run of ten turns by the real command. The model may end earlier: the number of turns is printed."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as state:
        for place, name in enumerate(CHAIN):
            last = place + 1 == len(CHAIN)
            says = "The word is teapot." if last else f"Next: {CHAIN[place + 1]}.txt"
            (Path(folder) / f"{name}.txt").write_text(f"{says}\n")
        done = subprocess.run(
            [sys.executable, "-m", "stockade.cli", "run", TASK, "--folder", f"{folder}:ro", "--model", f"gguf/{path}",
             "--max-turns", str(SCRIPT_TURNS), "--json", "--keep-warm-s", "0", "--timeout", "0", "--seed", "1",
             "--temperature", "0.8", *(["--llama-server", llama_server] if llama_server else [])],
            stdout=subprocess.PIPE, check=False, env={**os.environ, "XDG_STATE_HOME": state},
        )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    usage = [event["answer"]["usage"] for event in events if event["type"] == "model_answered"]
    later = usage[1:]
    prompt, hits = (sum(one[key] for one in later) for key in ("prompt_tokens", "cached_tokens"))
    # What turn n had seen when turn n+1 came: its prompt and its answer.
    there = sum(one["prompt_tokens"] + one["completion_tokens"] for one in usage[:-1])
    return {"turns": len(usage), "prompt": prompt, "cached": hits, "share": hits / max(1, prompt),
            "of_what_was_there": hits / max(1, min(there, prompt)), "usage": usage,
            "result": events[-1]["reason"]}  # fmt: skip


# Every file names the next one, so no command can read them all and a run has its ten turns.
CHAIN = ("start", "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "ivory", "juniper", "kestrel")
TASK = "start.txt names the file to read next, and so on. Read one by one and answer with the word in the last one."


async def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/embedded.py", description="The embedded server, as ratios.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="the length of each answer")
    parser.add_argument("--llama-server", default="off", help="a stock server for the embedded one and the run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=("through", "at-once", "drafts", "cached"))
    given = parser.parse_args()
    settings = ModelSettings(ctx_size=WINDOW, slots=SLOTS, llama_server=given.llama_server)
    found: dict[str, Any] = {}
    if given.only in (None, "through"):
        found["through"] = await through_us(given.model, settings, given.rounds, given.tokens)
        print(f"through us: {found['through']['ratio']:.3f} of llama.cpp's own server, median of {given.rounds} pairs "
              f"({statistics.median(found['through']['ours']):.1f} tokens/s)", flush=True)  # fmt: skip
    if given.only in (None, "at-once"):
        found["at_once"] = await at_once(given.model, settings, given.rounds, given.tokens)
        print(f"{SLOTS} at once: {found['at_once']['ratio']:.2f} times the tokens/s of one", flush=True)
    if given.only in (None, "drafts"):
        found["drafts"] = await with_drafts(given.model, given.rounds, given.tokens)
    if given.only in (None, "cached"):
        found["cached"] = await anyio.to_thread.run_sync(cached, given.model, given.llama_server)
        print(f"cached: {found['cached']['share']:.1%} of the prompt tokens of turns 2 to {found['cached']['turns']}, "
              f"{found['cached']['of_what_was_there']:.1%} of those that were there", flush=True)  # fmt: skip
    if given.json:
        await anyio.Path(given.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    anyio.run(main)
