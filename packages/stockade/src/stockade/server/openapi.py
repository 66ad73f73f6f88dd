"""What `/openapi.json` says beside what the routes' own types do: errors, headers, bodies that are no JSON."""

from typing import Any

from fastapi import FastAPI

from stockade.server.models import Problem
from stockade_sandbox.server.description import EVENT, description

_ERRORS: dict[int | str, str] = {
    401: "No token, or nobody's.",
    403: "The token has not this scope, or a page of another site asks.",
    404: "There is none of that name, or it is another token's.",
    409: "It cannot be done while the run, or its folder, is as it is.",
    410: "What it needs was removed.",
    412: "The changes are not those of If-Match: nothing was done.",
    413: "The request is larger than it may be.",
    422: "What was asked for is not to be had.",
    428: "If-Match is missing: it says which changes are meant.",
    429: "The token has as much, or asks as often, as it may. Retry-After, where it is to be said.",
    502: "The model failed.",
    "default": "Any other error: of the request's form, or of the machine.",
}
TAG: dict[str, Any] = {"ETag": {"schema": {"type": "string"}, "description": "Names exactly these changes."}}
TAR: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/x-tar": {"schema": {"contentMediaType": "application/x-tar"}}},
    }
}
OCTETS = "application/octet-stream"
RAW: dict[str, Any] = {"content": {OCTETS: {"schema": {"type": "string", "contentMediaType": OCTETS}}}}
__all__ = ["EVENT", "OCTETS", "RAW", "TAG", "TAR", "Described", "errors"]


def errors(*statuses: int | str) -> dict[int | str, dict[str, Any]]:
    """What the description says of them: each is a problem."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {one: {"description": _ERRORS[one], "content": content} for one in statuses}


class Described(FastAPI):
    """Its description has the one form of errors, and the routes of /v1/sandboxes, which another application serves."""

    def openapi(self) -> dict[str, Any]:
        found = super().openapi()
        paths, schemas = description([{"token": ["run"]}])
        found["paths"] |= paths
        found["components"]["schemas"] |= schemas | {"Problem": Problem.model_json_schema()}
        _link(found["paths"])
        return found


_MADE = (
    ("/v1/runs", "/v1/runs/{run}", {"run": "$response.body#/id"}),
    ("/v1/runs/{run}/rewind", "/v1/runs/{run}", {"run": "$response.body#/id"}),
    ("/v1/uploads", "/v1/uploads/{upload}", {"upload": "$response.body#/id"}),
    ("/v1/sandboxes", "/v1/sandboxes/{id}", {"id": "$response.body#/id"}),
    ("/v1/sandboxes/{id}/programs", "/v1/sandboxes/{id}/programs/{n}",
     {"id": "$request.path.id", "n": "$response.body#/n"}),
)  # fmt: skip
"""What a POST makes, where that is, and its name there."""


def _link(paths: dict[str, Any]) -> None:
    """Says of each answer what may be asked next about it (OpenAPI's `links`), so that clients and tests can go on."""
    for made, below, names in _MADE:
        links = {
            operation["operationId"]: {"operationId": operation["operationId"], "parameters": names}
            for path, methods in paths.items()
            for operation in methods.values()
            if f"{path}/".startswith(f"{below}/") and path.count("{") == len(names)
        }
        paths[made]["post"]["responses"]["201"]["links"] = links
    this = {"run": "$request.path.run"}
    tag = this | {"header.if-match": "$response.header.ETag"}
    paths["/v1/runs/{run}/diff"]["get"]["responses"]["200"]["links"] = {
        name: {"operationId": name, "parameters": tag} for name in ("apply", "discard")
    }
    paths["/v1/runs/{run}/diff"]["get"]["responses"]["200"]["links"]["file"] = {
        "operationId": "file",
        "parameters": this | {"path": "$response.body#/files/0/path"},
    }
    paths["/v1/runs/{run}/approvals"]["get"]["responses"]["200"]["links"] = {
        "approve": {"operationId": "approve", "parameters": this | {"number": "$response.body#/0/number"}}
    }
    paths["/v1/runs/{run}/apply"]["post"]["responses"]["200"]["links"] = {
        "undo": {"operationId": "undo", "parameters": this}
    }
    upload = {"operationId": "begin", "requestBody": {"task": "t", "upload": "$response.body#/id"}}
    paths["/v1/uploads"]["post"]["responses"]["201"]["links"]["begin"] = upload
