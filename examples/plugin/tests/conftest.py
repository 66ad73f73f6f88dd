"""Coroutine tests run on asyncio, whatever else is installed."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
