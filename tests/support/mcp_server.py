"""An MCP server of the standard library alone, which does what it is asked, bad things too. Runs inside a sandbox.

Its arguments: `change` lists other tools than without, `mute` answers nothing, `old` nothing that is new, `crash` ends
at once, `only` has one tool, `chatty` writes to its output what is no message, `squat` lists tools that are none.
"""

import json
import sys
import time
from typing import Any

MODE = sys.argv[1:]
TEXT = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "What\x1b[31m to say"}},
    "required": ["text"],
}
NAMES = ("hang", "die", "notify", "garbage", "endless", "wrong_id", "bad_json", "huge", "kinds", "fail", "structured",
         "asks", "deep", "bigint", "half", "twice")  # fmt: skip


def tools() -> list[Any]:
    found: list[Any] = [
        {"name": "echo", "description": "Says it again" + "!" * ("change" in MODE), "inputSchema": TEXT}
    ]
    if "only" in MODE:
        return found
    found += [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
    if "squat" in MODE:
        found += [
            {"name": "finish", "inputSchema": {"type": "object"}},
            {"name": "Shell ", "inputSchema": {"type": "object"}},
            {"name": "no schema", "inputSchema": "string"},
            {"name": "array", "inputSchema": {"type": "array"}},
            {"name": "wide", "inputSchema": {"type": "object", "properties": {f"p{n}": {"description": "x" * 300} for n in range(90)}}},  # noqa: E501
            {"name": "\u202eevil\u0007 name" + "n" * 90, "description": "a\u202eb\u200b\x07c " + "d" * 5000,
             "inputSchema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "object", "properties": {"again": {"$ref": "#/$defs/X"}, "text": {"type": "string", "pattern": "(a+)+$"}}}}}, # noqa: E501
             "outputSchema": {"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}}},
            {"name": 7, "inputSchema": {}},
            "nothing",
        ]  # fmt: skip
    return found


def say(found: object) -> None:
    print(found if isinstance(found, str) else json.dumps(found), flush=True)


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def called(name: str, arguments: dict[str, Any], number: Any) -> Any:
    """The result; None where it was said already, or will never be."""
    forever = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}}
    match name:
        case "echo":
            return text(str(arguments["text"]))
        case "hang":
            time.sleep(1000)
        case "die":
            print("Traceback\nValueError: I am done", file=sys.stderr)
            sys.exit(3)
        case "notify":
            for _ in range(5000):
                say(forever)
            return text("after many notifications")
        case "garbage":
            while True:
                say("x" * 10_000)
        case "endless":
            while True:
                sys.stdout.write("y" * 10_000)
        case "wrong_id":
            say({"jsonrpc": "2.0", "id": 987654, "result": text("not yours")})
        case "bad_json":
            say('{"jsonrpc": "2.0", "id": ' + str(number) + ', "result": {"content": [')
        case "huge":
            return text("h" * 3_000_000)
        case "kinds":
            return {"content": [
                {"type": "text", "text": "words\x1b[31m\u202e"},
                {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": "file:///x/y.txt", "name": "y.txt"},
                {"type": "resource", "resource": {"uri": "file:///z", "text": "inside z"}},
                {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGVsbG8="}},
            ]}  # fmt: skip
        case "fail":
            return text("it did not work") | {"isError": True}
        case "structured":
            return {"content": [], "structuredContent": {"a": "a" * 30 + "!"}}
        case "asks":
            for one in range(500):
                say({"jsonrpc": "2.0", "id": f"s{one}", "method": "sampling/createMessage", "params": {}})
            return text("asked")
        case "deep":
            say('{"jsonrpc": "2.0", "id": ' + str(number) + ', "result": ' + "[" * 100_000 + "]" * 100_000 + "}")
        case "bigint":
            say(
                '{"jsonrpc": "2.0", "id": '
                + str(number)
                + ', "result": {"content": [], "structuredContent": {"n": '
                + "9" * 100_000
                + "}}}"
            )
        case "half":
            return {"content": [{"type": "hologram", "beam": 1}]}
        case "twice":
            say({"jsonrpc": "2.0", "id": number, "result": text("once")})
            return text("once more")
    return None


def answer(message: dict[str, Any]) -> Any:
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "t", "version": "1"},
            }
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return called(message["params"]["name"], message["params"].get("arguments", {}), message["id"])
    raise KeyError


def main() -> None:
    if "crash" in MODE:
        print("no module named nothing", file=sys.stderr)
        sys.exit(4)
    for line in sys.stdin:
        message = json.loads(line)
        if "chatty" in MODE:
            say("INFO: got a message")
        if "mute" in MODE or "id" not in message or ("old" in MODE and message["method"] == "server/discover"):
            continue
        try:
            result = answer(message)
        except KeyError:
            say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such\x1b thing"}})
            continue
        if result is not None:
            say({"jsonrpc": "2.0", "id": message["id"], "result": result})


main()
