"""The spans of a run, sent where `OTEL_*` asks for them."""

import os
from collections.abc import Callable

import anyio

from stockade import assemble
from stockade.cli.failures import say
from stockade.core.ports import RunStore


def traced() -> Callable[[RunStore, assemble.Prepared], None] | None:
    """What sends the spans of a run, where `OTEL_*` asks for them. UsageError when that is not possible."""
    if not any(name.startswith("OTEL_") for name in os.environ):
        return None
    from stockade.assemble import continuing

    def send(store: RunStore, prepared: assemble.Prepared) -> None:
        if not anyio.run(continuing.trace, store, prepared.started.run_id, len(prepared.history)):
            say("the spans of this run could not be delivered", "look at OTEL_EXPORTER_OTLP_ENDPOINT")

    return send if continuing.check_tracing() else None
