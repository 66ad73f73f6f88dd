"""Marks what known_limits.py lists; a test class says which backend it is about with `limits_of`."""

import pytest

from tests.conformance.known_limits import known_limit


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        backend = getattr(getattr(item, "cls", None), "limits_of", None)
        if backend and (limit := known_limit(backend, getattr(item, "originalname", item.name))):
            item.add_marker(pytest.mark.xfail(reason=limit.reason, strict=True, run=not limit.lethal))
