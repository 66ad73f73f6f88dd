"""What the routes of `app` take and answer, as OpenAPI 3.1 has it: their paths, and the schemas of their bodies."""

from dataclasses import dataclass
from typing import Any

import msgspec

from stockade_sandbox.backends.remote.calls import Closed, Opened, Opening, Refusal, Resize, Signal, Start, State
from stockade_sandbox.server.deciding import Applied, Wanted

BINARY, EVENTS, JSON = "application/octet-stream", "text/event-stream", "application/json"
TAR, DIFF = "application/x-tar", "text/x-diff"
EVENT = {
    "type": "object",
    "description": "Each event of the stream.",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}
"""What OpenAPI 3.2 has as `itemSchema`."""
_PREFIX = "Sandbox"
"""Before the names of the schemas: whoever describes more than this has a `Limits` too."""
_ERRORS = {
    "401": "No token, or nobody's.",
    "403": "A page asks, or the token may not have sandboxes.",
    "404": "There is no sandbox, or program, of that name, or it is another token's.",
    "409": "It does not fit what was asked before.",
    "410": "The sandbox has ended.",
    "412": "The changes are not those of If-Match: nothing was done.",
    "413": "The request is larger than it may be.",
    "422": "What was asked for is not to be had.",
    "500": "The serving machine has failed.",
    "503": "The program does not read its input: the same is to be sent again.",
    "default": "Any other error: of the request's form, or of the machine.",
}


class Opens(msgspec.Struct):
    """The sandboxes of a token."""

    sandboxes: tuple[Opened, ...]


@dataclass(frozen=True)
class Said:
    """Of one route. `takes` and `gives`: the type of a body, or its media type. `headers`, `query`: what may be there,
    each with its schema. `or_nothing`: 204 is an answer too.
    """

    name: str
    about: str
    gives: type[msgspec.Struct] | str | None = None
    status: int = 200
    takes: type[msgspec.Struct] | str | None = None
    errors: tuple[int, ...] = ()
    headers: tuple[tuple[str, dict[str, Any]], ...] = ()
    query: tuple[tuple[str, dict[str, Any]], ...] = ()
    or_nothing: bool = False


_KEY = (("Idempotency-Key", {"type": "string", "pattern": "^[0-9a-z]{1,32}$"}),)
_WHOLE = {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
_NETWORK = ("network", _WHOLE)
_ALL = "/v1/sandboxes"
_ONE = f"{_ALL}/{{id}}"
_PROGRAM, _FILE = f"{_ONE}/programs/{{n}}", f"{_ONE}/files/{{path}}"
_FOLDER = f"{_ONE}/folders/{{number}}"
ROUTES = {
    ("POST", _ALL): Said(
        "open_sandbox", "A sandbox for a policy, within what the server allows. Its name is the Idempotency-Key, where "
        "one is given: the same name is the same sandbox.", Opened, 201, Opening, (404, 500), _KEY,
    ),
    ("GET", _ALL): Said("list_sandboxes", "Those of this token.", Opens),
    ("GET", _ONE): Said("show_sandbox", "When it is open.", Opened, errors=(404, 410, 500)),
    ("DELETE", _ONE): Said(
        "close_sandbox", "It is over, with all that runs in it; also one that was never begun. `network`: what of its "
        "requests to the network the client has heard.", Closed, query=(_NETWORK,),
    ),
    ("GET", f"{_ONE}/events"): Said(
        "keep_sandbox", "Nothing but comments: as long as somebody reads them the sandbox is kept.", EVENTS,
        errors=(404,),
    ),
    ("POST", f"{_ONE}/programs"): Said(
        "start_program", "A program, or a command for the shell. The same name is the same program.", State, 201, Start,
        (404, 409, 410, 500), _KEY,
    ),
    ("GET", _PROGRAM): Said(
        "show_program", "How it is, after `wait` seconds at most where it has not ended before.", State,
        errors=(404, 410), query=(("wait", _WHOLE), _NETWORK),
    ),
    ("DELETE", _PROGRAM): Said(
        "end_program", "It is over, and forgotten; also one that was never begun.", status=204, errors=(404, 410)
    ),
    ("GET", f"{_PROGRAM}/events"): Said(
        "program_events", "Server-sent events: `stdout` and `stderr` with base64, `end` at last. The id is how many "
        "bytes there were so far; Last-Event-ID goes on behind them, and what is before is forgotten.", EVENTS,
        errors=(404, 410), headers=(("Last-Event-ID", _WHOLE),),
    ),
    ("POST", f"{_PROGRAM}/stdin"): Said(
        "feed_program", "Its input behind the first `at` bytes; with `end=1` nothing comes after it.", status=204,
        takes=BINARY, errors=(404, 409, 410, 503), query=(("at", _WHOLE), ("end", {"enum": ["0", "1"]})),
    ),
    ("POST", f"{_PROGRAM}/signal"): Said(
        "signal_program", "A signal, or the end of the program with all that it started.", status=204, takes=Signal,
        errors=(404, 409, 410),
    ),
    ("POST", f"{_PROGRAM}/resize"): Said(
        "resize_program", "The size of its terminal.", status=204, takes=Resize, errors=(404, 409, 410)
    ),
    ("PUT", f"{_FOLDER}"): Said(
        "send_folder", "A folder that was said to be sent, as a tar: the sandbox begins once it has all of them.",
        status=204, takes=TAR, errors=(404, 409, 410, 413, 500),
    ),
    ("GET", f"{_FOLDER}/changes"): Said(
        "folder_changes", "What was written to a folder that was sent, behind the snapshot `since`, as a tar; 204: "
        "nothing was.", TAR, errors=(404, 409, 410, 500), query=(("since", {"type": "string"}),), or_nothing=True,
    ),
    ("GET", f"{_ONE}/diff"): Said(
        "diff_sandbox", "What was written to overlay folders of the serving machine; its ETag is what an apply means.",
        DIFF, errors=(404, 409, 410, 500),
    ),
    ("POST", f"{_ONE}/apply"): Said(
        "apply_sandbox", "It, or some of it, into those folders; the sandbox is over then.", Applied, takes=Wanted,
        errors=(404, 409, 410, 412, 500), headers=(("If-Match", {"type": "string"}),),
    ),
    ("GET", _FILE): Said(
        "read_sandbox_file", "A file of the sandbox, by a program in it.", BINARY, errors=(404, 410, 500)
    ),
    ("PUT", _FILE): Said(
        "write_sandbox_file", "A file of the sandbox, whole; folders that it lies in are made.", status=204,
        takes=BINARY, errors=(404, 410, 500),
    ),
}  # fmt: skip
"""By method and path: all that `app` has but /healthz."""


def description(security: list[dict[str, list[str]]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`paths` and `schemas` of an OpenAPI document. `security`: what each route needs, as its `security` has it."""
    bodies = [Opens, Refusal]
    bodies += [one for said in ROUTES.values() for one in (said.takes, said.gives) if isinstance(one, type)]
    _, found = msgspec.json.schema_components(bodies, ref_template=f"#/components/schemas/{_PREFIX}{{name}}")
    paths = dict[str, dict[str, Any]]()
    for (method, path), said in ROUTES.items():
        paths.setdefault(path, {})[method.lower()] = _operation(path, said, security)
    return paths, {f"{_PREFIX}{name}": one for name, one in found.items()}


def _operation(path: str, said: Said, security: list[dict[str, list[str]]]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "As asked."}
    if said.gives is not None:
        answer["content"] = _content(said.gives)
    if said.status == 201:
        answer["headers"] = {"Location": {"schema": {"type": "string"}, "description": "Where it is."}}
    wrong = ("401", "403", "422", *map(str, said.errors), "default")
    problem = {"application/problem+json": _content(Refusal)[JSON]}
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    places = [("path", name, {"type": "string", "minLength": 1}) for name in names]
    places += [("query", *one) for one in said.query] + [("header", *one) for one in said.headers]
    found: dict[str, Any] = {
        "operationId": said.name,
        "description": said.about,
        "security": security,
        "parameters": [
            {"name": name, "in": place, "required": place == "path", "schema": schema} for place, name, schema in places
        ],
        "responses": {
            str(said.status): answer,
            **({"204": {"description": "Nothing."}} if said.or_nothing else {}),
            **{status: {"description": _ERRORS[status], "content": problem} for status in sorted(wrong)},
        },
    }
    if said.takes is not None:
        found["requestBody"] = {"required": said.takes != BINARY, "content": _content(said.takes)}
    return found


def _content(body: type[msgspec.Struct] | str) -> dict[str, Any]:
    if body == EVENTS:
        return {EVENTS: {"schema": EVENT}}
    if isinstance(body, str):
        return {body: {"schema": {"type": "string", "contentMediaType": body}}}
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{_PREFIX}{body.__name__}"}}}
