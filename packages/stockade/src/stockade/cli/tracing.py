"""The spans of a run, sent where `OTEL_*` asks for them."""

import os
from collections.abc import Callable
from functools import cache

import anyio
import anyio.to_thread

from stockade.cli.failures import say
from stockade.core.errors import UsageError, to_install
from stockade.core.events import RunFinished
from stockade.core.ports import RunStore
from stockade.exports import is_wanted
from stockade.runtime.factory import Prepared


def traced() -> Callable[[RunStore, Prepared], None] | None:
    """What sends the spans of a run, where `OTEL_*` asks for them. Where they cannot be had, a warning says so once:
    the variables are often set for every program of a machine.
    """
    if not any(name.startswith("OTEL_") for name in os.environ):
        return None
    try:
        if not is_wanted():
            return None
        from stockade.exports import otel
    except UsageError as error:
        _warn(f"no spans are sent: {error.message}: {error.hint}")
        return None
    except ImportError:
        _warn(f"no spans are sent: OTEL_* asks for spans, which needs OpenTelemetry: {to_install('otel')}")
        return None

    async def deliver(store: RunStore, prepared: Prepared) -> bool:
        events, known = await store.events(prepared.started.run_id), len(prepared.history)
        ends = (place + 1 for place, event in enumerate(events[:known]) if isinstance(event, RunFinished))
        return await anyio.to_thread.run_sync(otel.send, events, max(ends, default=0))

    def send(store: RunStore, prepared: Prepared) -> None:
        if not anyio.run(deliver, store, prepared):
            say("the spans of this run could not be delivered", "look at OTEL_EXPORTER_OTLP_ENDPOINT")

    return send


@cache
def _warn(line: str) -> None:
    say(line)
