"""Spans of a run to an OpenTelemetry collector. Imports OpenTelemetry: needs the extra `[otel]`.

The variables are those of the specification: OTEL_EXPORTER_OTLP_ENDPOINT (or ..._TRACES_ENDPOINT), OTEL_TRACES_EXPORTER
(`otlp`, `console` or `none`), OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED, and
OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _CERTIFICATE, _COMPRESSION. Content is sent only when
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true.
"""

import logging
import os
import sys
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from stockade.core.events import RunEvent
from stockade.exports.spans import ERROR, Span, spans

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
_TIMEOUT_S = 3
"""How long a run waits for a collector that does not answer, unless the user said otherwise."""


def send(events: Sequence[RunEvent], first: int = 0) -> bool:
    """The spans of the run's parts that end after event number `first`. False when they could not be delivered.

    Blocks until they are sent.
    """
    found = spans(events, first, content=os.environ.get(CONTENT, "").lower() == "true")
    resource = Resource.create({} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "stockade"})
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # who called says what went wrong, in one line
    exporter = _exporter()
    try:
        return exporter.export([_readable(one, resource) for one in found]) is SpanExportResult.SUCCESS
    finally:
        exporter.shutdown()


def _exporter() -> SpanExporter:
    if os.environ.get("OTEL_TRACES_EXPORTER") == "console":
        return ConsoleSpanExporter(out=sys.stderr)
    given = any(os.environ.get(name) for name in _TIMEOUTS)
    return OTLPSpanExporter() if given else OTLPSpanExporter(timeout=_TIMEOUT_S)


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    def context(number: int) -> SpanContext:
        return SpanContext(span.trace, number, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    attributes = {**span.attributes, **({ERROR: span.error} if span.error else {})}
    return ReadableSpan(
        name=span.name,
        context=context(span.span),
        parent=context(span.parent) if span.parent is not None else None,
        resource=resource,
        attributes=attributes,
        links=[Link(context(span.follows))] if span.follows is not None else [],
        kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
        instrumentation_scope=InstrumentationScope("stockade"),
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=round(span.start * 1e9),
        end_time=round(span.end * 1e9),
    )
