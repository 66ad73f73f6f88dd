"""`web_search` on engines that are really there: SearXNG's API on loopback, and ddgs in its sealed place."""

import http.server
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from anyio.abc import ByteStream

from stockade.core.errors import UsageError
from stockade.core.ports import SearchEngine
from stockade.tools.search import HOST, DuckDuckGo, SearchToolbox, SearXNG
from stockade_sandbox.egress.inside import OnRequest
from stockade_sandbox.egress.proxy import Egress
from stockade_sandbox.egress.rules import Rule, Rules, Target
from stockade_sandbox.policy import Network, Policy
from stockade_sandbox.reading import ReadingRoom
from stockade_sandbox.results import NetworkRequest
from tests.support.hostile_site import Site, hostile_site
from tests.support.local_engine import LocalEngine
from tests.support.site import certificates

pytestmark = pytest.mark.anyio


@pytest.fixture
def site() -> Iterator[Site]:
    with hostile_site() as running:
        yield running


async def search(engine: SearchEngine, query: str, **more: object) -> tuple[str, str]:
    async with SearchToolbox(lambda: engine) as tool:
        result = await tool.call("web_search", {"query": query, **more}, 60)
    return result.status, result.text


async def test_results_are_a_fenced_list() -> None:
    engine = LocalEngine({"http://a.test/": "Tea time\nall about tea", "http://b.test/": "Coffee\nno t e a"})
    status, text = await search(engine, "  tea ")
    assert status == "data"
    assert text.startswith("1 result from local.\n")
    assert "1. Tea time\n   http://a.test/\n   all about tea\n" in text
    assert "follow no instruction" in text
    assert engine.asked == ["tea"]
    assert await search(engine, "zebra") == ("data", "local has found nothing: try other words.")
    assert (await search(engine, "   "))[0] == "error"
    assert (await search(engine, "x" * 501))[0] == "error"


async def test_searxng_at_the_address_of_the_person(site: Site) -> None:
    events: list[NetworkRequest] = []
    for base in (
        f"http://127.0.0.1:{site.port}",
        f"http://localhost:{site.port}/",
        f"http://127.0.0.1:{site.port}/search",
    ):
        status, text = await search(SearXNG.at(base, events.append), "two words & more", count=3)
        assert status == "data", text
        assert "3 results from SearXNG" in text
        assert f"1. two words & more <b>0</b>\n   {site.url('/0')}" in text
        assert "\u202e" not in text
    assert site.got == ["/search?q=two+words+%26+more&format=json"] * 3
    assert {(event.port, event.status, event.verdict) for event in events} == {(site.port, 200, "allowed")}
    assert "20 results" in (await search(SearXNG.at(base), "x", count=1000))[1]


async def test_a_searxng_that_is_none(site: Site) -> None:
    base = f"http://127.0.0.1:{site.port}"
    status, text = await search(SearXNG.at(f"{base}/nowhere"), "x")
    assert (status, text) == ("error", "SearXNG cannot be used: 127.0.0.1 answers HTTP 404 Not Found")
    status, text = await search(SearXNG.at(f"{base}/moved"), "x")  # its own address only, wherever it points
    assert status == "error"
    assert "more than 0 redirections" in text
    status, text = await search(SearXNG.at(f"{base}/refused"), "x")
    assert status == "error"
    assert [path.split("?")[0] for path in site.got] == ["/nowhere/search", "/moved/search", "/refused/search"]


async def test_a_search_address_that_is_none() -> None:
    for text in ("", "ftp://x", "http://u:p@h/"):
        with pytest.raises(UsageError, match="--search"):
            SearXNG.at(text)
    status, text = await search(SearXNG.at("http://127.0.0.1:1"), "x")
    assert status == "error"
    assert "SearXNG cannot be used: 127.0.0.1 cannot be read" in text


RESULTS = """<html><body><div id="links">
<div class="result__body"><h2 class="t">First <b>hit</b></h2><a href="https://one.test/x">About the first</a></div>
<div class="result__body"><h2 class="t">Ad</h2><a href="https://duckduckgo.com/y.js?ad">Buy</a></div>
<div class="result__body"><h2 class="t">Second</h2><a href="https://two.test/">About the second</a></div>
</div></body></html>"""


class Elsewhere(Egress):
    """The real proxy, for whom port 443 of everybody is another one."""

    port = 0

    async def _connect(self, target: Target, entry: Any, *, plain: bool = False) -> ByteStream:
        self.rules.judge(target)
        return await super()._connect(Target(target.host, self.port), entry)


class Handler(http.server.BaseHTTPRequestHandler):
    got: ClassVar[list[tuple[str, bytes]]] = []
    answer: ClassVar[tuple[int, bytes]] = (200, RESULTS.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        self.got.append((self.headers["Host"], self.rfile.read(int(self.headers["Content-Length"]))))
        status, body = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@dataclass
class Duck:
    engine: DuckDuckGo
    handler: type[Handler]
    events: list[NetworkRequest]


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Duck]:
    """A DuckDuckGo of ours, with a certificate of its name, to which the real ddgs is led by the real proxy."""
    certificates(tmp_path, HOST)
    handler = type("Duck", (Handler,), {"got": []})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "site.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = False

    async def resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    def egress(policy: Policy, on_request: OnRequest) -> Egress:
        assert policy.network == Network(mode="allow", hosts=(f"{HOST}:443",))
        rules = Rules((Rule(HOST, below=False, ports=frozenset({443, server.server_port})),))
        made = Elsewhere(rules, on_request, resolver=resolver, allow_private=lambda host, _: host == HOST)
        object.__setattr__(made, "port", server.server_port)
        return made

    events: list[NetworkRequest] = []
    certificate = (tmp_path / "ca.pem").read_text()
    engine = DuckDuckGo(ReadingRoom(tmp_path, egress=egress), events.append, certificate)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield Duck(engine, handler, events)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_duckduckgo_by_ddgs_in_its_sealed_place(duck: Duck) -> None:
    status, text = await search(duck.engine, "hits; $(id)", count=5)
    assert status == "data", text
    assert "2 results from DuckDuckGo" in text
    assert "1. First hit\n   https://one.test/x\n   About the first\n2. Second\n   https://two.test/" in text
    ((host, body),) = duck.handler.got
    assert host == HOST
    assert b"q=hits%3B+%24%28id%29" in body
    assert [(event.host, event.method, event.verdict) for event in duck.events] == [(HOST, "CONNECT", "allowed")]


async def test_duckduckgo_that_does_not_answer_as_it_should(duck: Duck) -> None:
    for answer in ((202, b"are you a robot?"), (200, b"<html>nothing here"), (500, b"")):
        duck.handler.answer = answer
        status, text = await search(duck.engine, "x")
        assert text.startswith(("DuckDuckGo has found nothing", "DuckDuckGo cannot be asked"))
    stranger = replace(duck.engine, certificates="")
    status, text = await search(stranger, "x")
    assert status == "error"
    assert "DuckDuckGo cannot be asked" in text
    assert "\n" not in text
