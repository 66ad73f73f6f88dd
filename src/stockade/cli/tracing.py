"""The spans of a run, sent where `OTEL_*` asks for them."""

import os
from collections.abc import Callable
from functools import cache

import anyio

from stockade.cli.failures import say
from stockade.core.errors import UsageError
from stockade.core.ports import RunStore
from stockade.runtime import factory


def traced() -> Callable[[RunStore, factory.Prepared], None] | None:
    """What sends the spans of a run, where `OTEL_*` asks for them. Where they cannot be had, a warning says so once:
    the variables are often set for every program of a machine.
    """
    if not any(name.startswith("OTEL_") for name in os.environ):
        return None
    from stockade.runtime import resume as continuing

    def send(store: RunStore, prepared: factory.Prepared) -> None:
        if not anyio.run(continuing.trace, store, prepared.started.run_id, len(prepared.history)):
            say("the spans of this run could not be delivered", "look at OTEL_EXPORTER_OTLP_ENDPOINT")

    try:
        return send if continuing.check_tracing() else None
    except UsageError as error:
        _warn(f"no spans are sent: {error.message}: {error.hint}")
        return None


@cache
def _warn(line: str) -> None:
    say(line)
