"""For schemathesis: bodies that lead to runs which do something, and waits, without which all would be under way."""

import io
import tarfile
import time
from typing import Any

import requests
import schemathesis
from schemathesis import Case, GenerationMode, HookContext, Response

PATIENCE_S = 60
_QUIET = ("bot", "model", "output_schema", "check", "protect")
"""What makes a run fail before it has done anything, mostly."""


@schemathesis.serializer("application/x-tar")
def tar(_: Any, value: Any) -> bytes:
    """A folder with one file, whatever was made up."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as made:
        made.addfile(tarfile.TarInfo("data.csv"), io.BytesIO())
    return value if isinstance(value, bytes) else packed.getvalue()


@schemathesis.hook
def before_call(_: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    name = case.operation.definition.raw["operationId"]
    fits = case.meta is None or case.meta.generation.mode == GenerationMode.POSITIVE
    if name == "begin" and fits and isinstance(case.body, dict):
        for one in _QUIET:
            case.body.pop(one, None)
        if "upload" not in case.body:
            case.body["folder"] = "."
        else:
            case.body.pop("folder", None)
    elif name == "start_program" and fits:
        case.body = {"argv": ["cat"]}
    elif name == "open_sandbox" and fits:
        case.body = {"policy": {}}
    elif name == "events":  # else it lasts as long as somebody would have to answer what the run asks
        _post(case, kwargs, f"/v1/runs/{case.path_parameters['run']}/cancel")


@schemathesis.hook
def after_call(_: HookContext, case: Case[Any], response: Response) -> None:
    """A run that was begun has ended, or asks, before anything else is done about it."""
    if case.operation.definition.raw["operationId"] in ("begin", "rewind", "message") and response.status_code < 300:
        run = response.json().get("id") or case.path_parameters["run"]
        url = f"{case.operation.schema.get_base_url().rstrip('/')}/v1/runs/{run}"
        headers = {"Authorization": str(response.request.headers["Authorization"])}
        while requests.get(url, headers=headers, timeout=PATIENCE_S).json()["status"] == "running":
            time.sleep(0.05)


def _post(case: Case[Any], kwargs: dict[str, Any], path: str) -> None:
    requests.post(
        f"{case.operation.schema.get_base_url().rstrip('/')}{path}", headers=kwargs.get("headers"), timeout=PATIENCE_S
    )
