"""What `/openapi.json` says beside what the routes' own types do: errors, headers, bodies that are no JSON."""

from typing import Any

from fastapi import FastAPI

from stockade.server.models import Problem

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
TAR: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/x-tar": {}}}}


def errors(*statuses: int | str) -> dict[int | str, dict[str, Any]]:
    """What the description says of them: each is a problem."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {one: {"description": _ERRORS[one], "content": content} for one in statuses}


class Described(FastAPI):
    """Its description has the one form of errors."""

    def openapi(self) -> dict[str, Any]:
        found = super().openapi()
        found["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return found
