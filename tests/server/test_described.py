"""`/openapi.json`: complete, so that clients can be made from it."""

import httpx2

from stockade_sandbox.backends.remote.allowed import Allowed
from stockade_sandbox.server.alone import own_boxes
from stockade_sandbox.server.app import App
from stockade_sandbox.server.description import ROUTES
from stockade_sandbox.server.sessions import Sessions
from tests.server.conftest import Stage
from tests.server.described import Description


def test_each_route_says_its_scope_its_errors_and_what_it_answers(stage: Stage) -> None:
    whole = Description(stage.url).whole
    names = set[str]()
    for path, methods in whole["paths"].items():
        for operation in methods.values():
            names.add(operation["operationId"])
            assert operation["description"], path
            responses = operation["responses"]
            assert "default" in responses
            if path.startswith("/v1/sandboxes"):
                assert operation["security"] == [{"token": ["run"]}]
                assert {"401", "403", "422"} <= responses.keys()
            elif path.startswith("/v1/"):
                assert {next(iter(one)) for one in operation["security"]} == {"token", "session"}
                assert len(operation["security"][0]["token"]) == 1
                assert {"401", "403", "422", "429"} <= responses.keys()
            for status, one in responses.items():
                if status.startswith("2") and status != "204":
                    assert all(kind.get("schema") for kind in one["content"].values()), (path, status)
                elif not status.startswith("2"):
                    assert list(one["content"]) == ["application/problem+json"], (path, status)
    assert "begin" in names
    assert len(names) == sum(len(methods) for methods in whole["paths"].values())
    assert "ETag" in whole["paths"]["/v1/runs/{run}/diff"]["get"]["responses"]["200"]["headers"]
    text = httpx2.get(f"{stage.url}/openapi.json").text
    assert "HTTPValidationError" not in text
    assert all(f'"{name}"' in text for name in ("Problem", "Run", "Diff", "bearer"))


def test_each_route_of_sandboxes_is_described() -> None:
    app = App(Sessions(Allowed(), own_boxes("bubblewrap")), lambda _: None).app
    there = {
        (method, getattr(route, "path", "").replace(":path}", "}").replace(":int}", "}"))
        for route in app.routes
        for method in getattr(route, "methods", ())
    }
    assert {one for one in there if one[0] != "HEAD" and one[1] != "/healthz"} == ROUTES.keys()
