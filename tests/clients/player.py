"""A server on loopback that plays the model: step by step as a script says, in the four APIs that agents speak."""

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Step = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""
DONE = "all is done"


class Player:
    """Entered, it serves on `port`. Whoever has had the results of n calls is given call n; behind the last, words.
    Before it hears `waits_for` it gives only words.
    `asked`: what came, each with its headers. `pages`: what is got, by the beginning of its path.
    """

    def __init__(self, steps: Sequence[Step] = (), words: str = DONE) -> None:
        self.steps, self.words, self.waits_for = steps, words, ""
        self.asked: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.pages: dict[str, Any] = {}
        player = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.end_headers()

            def do_GET(self) -> None:
                if "Upgrade" in self.headers:
                    self.send_error(426)
                    return
                found = (page for path, page in player.pages.items() if self.path.startswith(path))
                page = next(found, {"object": "list", "data": []})
                self._send(json.dumps(page).encode(), "application/json")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                player.asked.append(({**self.headers, ":path": self.path}, body))
                self._send(player.answer(self.path, body), "text/event-stream")

            def _send(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> bytes:
        said = [*body.get("input", ()), *body.get("messages", ()), *body.get("contents", ())]
        inner = [
            block
            for one in said
            for blocks in (one.get("content"), one.get("parts"))
            if isinstance(blocks, list)
            for block in blocks
        ]
        done = sum(_is_result(one) for one in (*said, *inner) if isinstance(one, dict))
        acts = body.get("tools") and done < len(self.steps) and self.waits_for in json.dumps(body)
        step = self.steps[done] if acts else None
        if "responses" in path:
            return _named(_responses(step, done, self.words))
        if "chat/completions" in path:
            return _chat(step, done, self.words)
        if "enerateContent" in path:
            return _gemini(step, self.words)
        return _named(_anthropic(step, done, self.words))


def _named(events: list[dict[str, Any]]) -> bytes:
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()


def _is_result(part: dict[str, Any]) -> bool:
    """Of a tool's call, in any of the APIs."""
    kinds = ("function_call_output", "custom_tool_call_output", "tool_result")
    return part.get("type") in kinds or part.get("role") == "tool" or "functionResponse" in part


def _gemini(step: Step | None, words: str) -> bytes:
    part = {"text": words} if step is None else {"functionCall": {"name": step[0], "args": step[1]}}
    told = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}]}
    return f"data: {json.dumps(told)}\n\n".encode()


def _chat(step: Step | None, number: int, words: str) -> bytes:
    piece = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    said: dict[str, Any] = {"content": words}
    if step is not None:
        function = {"name": step[0], "arguments": json.dumps(step[1])}
        said = {"tool_calls": [{"index": 0, "id": f"c{number}", "type": "function", "function": function}]}
    pieces: list[dict[str, Any]] = [
        {"delta": {"role": "assistant", **said}},
        {"delta": {}, "finish_reason": "stop" if step is None else "tool_calls"},
    ]
    lines = [json.dumps({**piece, "choices": [{"index": 0, "finish_reason": None, **one}]}) for one in pieces]
    return "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()


def _responses(step: Step | None, number: int, words: str) -> list[dict[str, Any]]:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    item: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "content": content}
    piece = [{"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": words}]
    if step is not None:
        piece = []
        item = {
            "type": "function_call",
            "id": f"f{number}",
            "status": "completed",
            "call_id": f"c{number}",
            "name": step[0],
            "arguments": json.dumps(step[1]),
        }
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "r", "created_at": 1, "model": "m"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": [], "arguments": ""}},
        *piece,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r", "usage": usage}},
    ]


def _anthropic(step: Step | None, number: int, words: str) -> list[dict[str, Any]]:
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": words}
    if step is not None:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": step[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step[1])}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn" if step is None else "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]
