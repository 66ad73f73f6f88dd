"""Stands between a peer and the model server: the same sampling for all, and every token counted.

A run is known by the first part of the path: `http://127.0.0.1:PORT/RUN/v1`. Answers are passed on as they are.
"""

import json
import os
import threading
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.ability.outcome import Tokens

SAMPLING = {"temperature": 0, "seed": 1}
MAX_ANSWER_TOKENS = 1024
TIMEOUT_S = 900
KEY = os.environ.get("OPENAI_API_KEY") or "none"
"""The server's. A peer does not get it."""


@dataclass
class Exchanges:
    """What went to and fro in one run, in order."""

    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tokens(self) -> Tokens:
        used = [exchange["answer"].get("usage") or {} for exchange in self.log]
        return Tokens(
            prompt=sum(usage.get("prompt_tokens", 0) for usage in used),
            cached=sum((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in used),
            completion=sum(usage.get("completion_tokens", 0) for usage in used),
        )


class Proxy(ThreadingHTTPServer):
    """`runs` is filled as requests come; each run's requests come one after the other."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.runs: defaultdict[str, Exchanges] = defaultdict(Exchanges)

    def address(self, run: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{run}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        run, _, path = self.path.removeprefix("/").partition("/v1")
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked |= SAMPLING | {"stream": False}
        asked["max_tokens"] = min(asked.get("max_tokens") or MAX_ANSWER_TOKENS, MAX_ANSWER_TOKENS)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        request = urllib.request.Request(f"{self.server.upstream}{path}", json.dumps(asked).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                status, body = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        self.server.runs[run].log.append({"asked": asked, "status": status, "answer": json.loads(body)})
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the log is in `runs`."""


@contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    """Serves as long as the block. `upstream` ends in /v1."""
    with Proxy(upstream) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
