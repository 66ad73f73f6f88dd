"""A record in other people's formats: pure functions over events, and the one place that speaks OpenTelemetry."""

import os
from collections.abc import Mapping, Sequence

from stockade.core.errors import UsageError
from stockade.core.events import HistoryCompacted, ModelAnswered, RunEvent, RunStarted, SelfConfigChanged
from stockade.core.messages import Usage


def used(events: Sequence[RunEvent]) -> Usage:
    """By this bot itself, before its first turn and to fold its history too; its helpers have records of their own."""
    total = Usage()
    for event in events:
        match event:
            case RunStarted():
                total += event.used
            case ModelAnswered():
                total += event.answer.usage
            case HistoryCompacted():
                total += event.usage
            case _:
                pass
    return total


def in_words(event: SelfConfigChanged) -> str:
    """All that is in force, and what was not taken."""
    sampling = event.sampling.model_dump(exclude_none=True)
    parts = [
        f"goal: {event.goal}" if event.goal else "",
        f"own prompt: {event.prompt}" if event.prompt else "",
        ", ".join(f"{name} {value}" for name, value in sampling.items()),
        *(f"not taken: {words}" for words in event.refused),
    ]
    return "; ".join(part for part in parts if part) or "nothing of its own"


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def is_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a place for spans is named. UsageError when what is asked for is not to be had here."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "")
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return False
    if not exporter and not any(environ.get(name) for name in _ENDPOINTS):
        return False
    if exporter not in ("", "otlp", "console"):
        raise UsageError(f"OTEL_TRACES_EXPORTER={exporter} is not known here", "otlp, console or none")
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise UsageError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} is not spoken here", "use http/protobuf")
    return True
