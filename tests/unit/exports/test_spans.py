"""Spans derived from events, and sent to a collector on loopback that speaks OTLP over HTTP."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from stockade.core.errors import UsageError
from stockade.core.events import RunResumed
from stockade.exports import is_wanted, otel
from stockade.exports.spans import spans, trace_id
from tests.unit.exports.sample import sample_run


class Collector(HTTPServer):
    """Keeps what it is sent. `status` is what it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[ExportTraceServiceRequest] = []
        self.status = 200

    @property
    def spans(self) -> list[WireSpan]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def attributes(span: WireSpan) -> dict[str, object]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}


@pytest.mark.anyio
async def test_a_run_arrives_as_nested_spans(collector: Collector) -> None:
    assert otel.send(await sample_run())
    by_name = {span.name: span for span in collector.spans}
    root = by_name["invoke_agent writing"]
    assert int.from_bytes(root.trace_id) == trace_id("r1")
    assert {span.parent_span_id for span in collector.spans if span is not root} == {root.span_id}
    assert sorted(by_name) == ["chat x", "execute_tool shell", "execute_tool write_file", "invoke_agent writing"]
    assert sum(span.name == "chat x" for span in collector.spans) == 4
    facts = attributes(root)
    assert facts["gen_ai.operation.name"] == "invoke_agent"
    assert facts["gen_ai.conversation.id"] == "r1"
    assert facts["stockade.status"] == "done"
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano >= root.start_time_unix_nano
               for span in collector.spans)  # fmt: skip


@pytest.mark.anyio
async def test_no_content_leaves_unless_asked_for(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    events = await sample_run()
    assert otel.send(events)
    assert b"please" not in collector.requests[0].SerializeToString()
    assert b"alert" not in collector.requests[0].SerializeToString()
    monkeypatch.setenv(otel.CONTENT, "true")
    assert otel.send(events)
    assert b"please" in collector.requests[1].SerializeToString()
    assert b"alert" in collector.requests[1].SerializeToString()


@pytest.mark.anyio
async def test_a_run_that_goes_on_is_the_same_trace_and_links_back(collector: Collector) -> None:
    events = await sample_run(again=True)
    place = next(number for number, event in enumerate(events) if isinstance(event, RunResumed))
    assert otel.send(events[:place])
    assert otel.send(events, place)
    first, second = [span for span in collector.spans if span.name.startswith("invoke_agent")]
    assert first.trace_id == second.trace_id
    assert [link.span_id for link in second.links] == [first.span_id]
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    assert len(spans(events)) == len(collector.spans)


@pytest.mark.anyio
async def test_a_collector_that_refuses_or_is_not_there_is_told(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = await sample_run()
    collector.status = 400
    assert not otel.send(events)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert not otel.send(events)


def test_what_is_wanted() -> None:
    assert not is_wanted({})
    assert is_wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
    assert not is_wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"})
    assert not is_wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"})
    assert is_wanted({"OTEL_TRACES_EXPORTER": "console"})
    with pytest.raises(UsageError, match="jaeger"):
        is_wanted({"OTEL_TRACES_EXPORTER": "jaeger"})
    with pytest.raises(UsageError, match="grpc"):
        is_wanted({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
