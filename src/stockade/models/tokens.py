"""How many tokens a request has, counted by the server that would answer it, template and tools included."""

import json
from typing import Any

from stockade.core.messages import ModelRequest
from stockade.models.payload import Dialect
from stockade.models.transport import Transport
from stockade.models.values import as_count


class TokenCounter:
    """Asks a server in its own way; one that cannot tell is not asked again."""

    def __init__(self, transport: Transport, dialect: Dialect) -> None:
        self._transport, self._dialect = transport, dialect
        self._ways = ["input_tokens", "tokenize"] if dialect.llama_cpp else []
        if dialect.server == "vllm":
            self._ways = ["vllm"]

    async def count(self, body: bytes, request: ModelRequest) -> int | None:
        """Tokens of the whole prompt; None when the server cannot tell. `body` is the request as it would be sent."""
        while self._ways:
            tokens = await self._by(self._ways[0], body, request)
            if tokens:
                return tokens
            self._ways.pop(0)
        return None

    async def _by(self, way: str, body: bytes, request: ModelRequest) -> int:
        url = self._transport.url
        root = url.removesuffix("/v1")
        if way == "input_tokens":
            return as_count((await self._tell(f"{url}/chat/completions/input_tokens", body)).get("input_tokens"))
        if way == "vllm":
            return as_count((await self._tell(f"{root}/tokenize", body)).get("count"))
        # Builds of llama.cpp from before that address.
        prompt = (await self._tell(f"{root}/apply-template", body)).get("prompt")
        if not isinstance(prompt, str):
            return 0
        asked = json.dumps({"content": prompt, "add_special": True, "parse_special": True}).encode()
        tokens = (await self._tell(f"{root}/tokenize", asked)).get("tokens")
        return len(tokens) if isinstance(tokens, list) else 0

    async def _tell(self, url: str, body: bytes) -> dict[str, Any]:
        return await self._transport.tell(url, body)
