"""A model server without a memory: its answer follows from how many the conversation has. `model_server.py PORT`.

It has lines enough for any test, then says that it is done. Killed at any time, it is started again as if nothing was.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

TURNS = 6


def answer(turn: int) -> str:
    action: dict[str, Any] = {"tool": "shell", "command": f"echo line-{turn} >> log"}
    if turn > TURNS:
        action = {"tool": "finish", "answer": "done"}
    return json.dumps({"thought": "", "action": action})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._whole(json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        turn = 1 + sum(message["role"] == "assistant" for message in asked.get("messages", ()))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        text = answer(turn)
        for piece in (text[:9], text[9:20], text[20:]):
            self._event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
            time.sleep(0.02)  # an answer takes its time, so that it can be cut
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def _whole(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


def main() -> None:
    HTTPServer.allow_reuse_address = True
    server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
