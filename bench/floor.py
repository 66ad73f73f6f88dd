"""The least that an agent loop can be: ask, run, append. What everything else is measured against.

Takes its server from OPENAI_BASE_URL. `floor.py httpx2` asks with a general client, `floor.py stdlib` with http.client.
No streaming, no record, no sandbox, no limits, no checks.
"""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a bash command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
Ask = Callable[[bytes], Any]


def with_httpx2(url: str) -> Ask:
    import httpx2  # noqa: PLC0415 - the other floor must not pay for it

    client = httpx2.Client(verify=False, trust_env=False, timeout=60)
    return lambda body: client.post(url, content=body, headers={"Content-Type": "application/json"}).json()


def with_stdlib(url: str) -> Ask:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)

    def ask(body: bytes) -> Any:
        connection.request("POST", parts.path, body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())

    return ask


def main(ask: Ask) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Do what you want. You can finish with any words."}]
    while True:
        body = json.dumps({"model": "fake", "messages": messages, "tools": [TOOL]}).encode()
        message = ask(body)["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr})


if __name__ == "__main__":
    address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    main({"httpx2": with_httpx2, "stdlib": with_stdlib}[sys.argv[1]](address))
