"""The record that a command's flags name, open as long as the command needs it. Imports little: so do who uses it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from stockade.cli import flags
from stockade.cli.lazy import load

if TYPE_CHECKING:
    from stockade.core.events import RunEvent
    from stockade.core.ports import RunStore
    from stockade.runtime.settings import Settings


@contextmanager
def on_record(values: Mapping[str, Any]) -> Iterator[tuple["RunStore", "Settings"]]:
    """The runs on record and the settings, as a command's flags say; closed at the end."""
    settings = flags.settings(flags.given(values))
    store: RunStore = load("store.opening:read_store")(settings.options.store)
    try:
        yield store, settings
    finally:
        anyio.run(store.close)


def history(values: Mapping[str, Any], run: str) -> tuple[list["RunEvent"], "Settings"]:
    """The events of one run on record. UsageError when there is none that `run` names."""
    with on_record(values) as (store, settings):
        return anyio.run(store.events, anyio.run(store.find, run)), settings
