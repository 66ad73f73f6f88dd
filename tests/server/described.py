"""Whether answers are what the server's own description says of them: status, type and content."""

import re
from typing import Any

import httpx2
from jsonschema import Draft202012Validator

PATIENCE_S = 240
ANYWHERE = {400, 403, 405, 408, 413, 421}
"""Of the request's form: before, or beside, the routes."""


class Description:
    """That of the server at `url`."""

    def __init__(self, url: str) -> None:
        self.whole: dict[str, Any] = httpx2.get(f"{url}/openapi.json", timeout=PATIENCE_S).json()
        self._routes = [(re.compile(_pattern(path)), methods) for path, methods in self.whole["paths"].items()]

    def check(self, response: httpx2.Response) -> None:
        """For an event hook of a client."""
        request = response.request
        of_path = next((one for pattern, one in self._routes if pattern.fullmatch(request.url.path)), None)
        if of_path is None or (method := request.method.lower()) not in of_path:
            assert response.status_code in (200, 404, 405) or response.status_code in ANYWHERE
            return
        said = of_path[method]["responses"]
        status = str(response.status_code)
        found = said.get(status) or (said["default"] if response.status_code in ANYWHERE else None)
        assert found is not None, f"{method} {request.url.path} answers {status}, which is not described"
        content, kind = found.get("content", {}), response.headers.get("Content-Type", "").partition(";")[0]
        if not content:
            assert not kind, f"{method} {request.url.path} {status} has a body of {kind}"
        else:
            assert kind in content, f"{method} {request.url.path} {status} is {kind}"
            if kind.endswith("json"):
                response.read()
                schema = {**content[kind]["schema"], "components": self.whole["components"]}
                Draft202012Validator(schema).validate(response.json())


def _pattern(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda name: ".+" if name[1] == "path" else "[^/]+", path)
