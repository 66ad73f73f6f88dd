"""A fake OpenAI-compatible server in a process of its own, which measures its clients from the outside.

A client's base URL is `http://127.0.0.1:PORT/RUN/TURNS/PID/v1`: the server asks it TURNS times for `echo i`, then to
end, in the spelling the request asks for. At each arrival it reads the CPU clock of process PID (all its threads, its
children apart), so that no client has to be changed to be measured. `GET /RUN` gives what was recorded.

Prints its port on stdout; ends when its stdin does.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.processes import cpu_clock, living_cpu_s, peak_rss

MAX_HEAD_BYTES = 1 << 16
SHELL_TOOLS = ("bash", "shell")
ENDINGS = ("final_answer", "submit", "finish")
"""What smolagents, inspect_ai and we end with."""
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""How mini-swe-agent ends."""


@dataclass
class Request:
    """One question. Times are monotonic seconds; `cpu_s` is the client's CPU so far; `grew`: it extends the last.

    `prompt_bytes` is the text of the messages alone; `body_bytes` all that was sent, tools and schemas included.
    `below_s` is the CPU of the client's living descendants, at the last request only.
    """

    arrived: float
    sent: float
    cpu_s: float
    rss_bytes: int
    body_bytes: int
    prompt_bytes: int
    grew: bool
    below_s: float = 0.0


@dataclass
class Run:
    """What one client process asked."""

    requests: list[Request] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)


def text_bytes(messages: Sequence[dict[str, Any]]) -> int:
    """Of all contents, whether a string or a list of parts."""
    contents = [message.get("content") or "" for message in messages]
    texts = [text if isinstance(text, str) else "".join(part.get("text", "") for part in text) for text in contents]
    return len("".join(texts).encode())


def answer(body: dict[str, Any], turn: int, turns: int) -> dict[str, Any]:
    """The assistant's message for question number `turn`, counted from 0."""
    command = f"echo {turn}"
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    if not names:
        action = {"tool": "shell", "command": command} if turn < turns else {"tool": "finish", "answer": "done"}
        return {"role": "assistant", "content": json.dumps({"thought": "go on", "action": action})}
    if turn < turns:
        return _call(next(name for name in names if name in SHELL_TOOLS), turn, command=command)
    if ending := next((name for name in names if name in ENDINGS), None):
        return _call(ending, turn, answer="done")
    if "You can finish" in json.dumps(body["messages"][:2]):
        return {"role": "assistant", "content": "done"}
    return _call(names[0], turn, command=SUBMIT)


def _call(name: str, turn: int, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": "go on",
        "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": function}],
    }


def encode(message: dict[str, Any], *, stream: bool) -> tuple[str, bytes]:
    """Content type and body."""
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    common = {"id": "x", "created": 1, "model": "fake"}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    pieces: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": usage},
    ]
    lines = [json.dumps({**common, "object": "chat.completion.chunk", **piece}) for piece in pieces]
    return "text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


class Server:
    """All runs of one measurement."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled is what open connections are when the server itself ends.
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                arrived = time.monotonic()
                method, path, _ = head.split(" ", 2)
                if method == "GET":
                    self._tell(writer, path)
                    continue
                name, turns, pid = path.split("/")[1:4]
                cpu_s = time.clock_gettime(cpu_clock(int(pid)))
                raw = await reader.readexactly(length_of(head))
                run = self.runs.setdefault(name, Run())
                # Before the last answer: after it, a sandbox is gone within a millisecond.
                below_s = living_cpu_s(int(pid)) if len(run.requests) == int(turns) else 0.0
                grew = self._answer(writer, run, int(turns), raw)
                sent, rss = time.monotonic(), peak_rss(int(pid))
                request = Request(arrived, sent, cpu_s, rss, len(raw), text_bytes(run.messages), grew, below_s)
                run.requests.append(request)
        writer.close()

    def _answer(self, writer: asyncio.StreamWriter, run: Run, turns: int, raw: bytes) -> bool:
        body = json.loads(raw)
        known, run.messages = run.messages, body["messages"]
        message = answer(body, len(run.requests), turns)
        reply(writer, *encode(message, stream=bool(body.get("stream"))))
        return run.messages[: len(known)] == known

    def _tell(self, writer: asyncio.StreamWriter, path: str) -> None:
        name = path.split("/")[1]
        if path.endswith("/models"):
            found: Any = {"object": "list", "data": [{"id": "fake"}]}
        else:
            found = [asdict(request) for request in self.runs.get(name, Run()).requests]
        reply(writer, "application/json", json.dumps(found).encode())


def reply(writer: asyncio.StreamWriter, kind: str, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


def length_of(head: str) -> int:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0


async def main() -> None:
    server = await asyncio.start_server(Server().serve, "127.0.0.1", limit=MAX_HEAD_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
