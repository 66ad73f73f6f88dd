"""Whether `OTEL_*` asks for spans, told without importing OpenTelemetry."""

import os
from collections.abc import Mapping

from stockade.core.errors import UsageError

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
