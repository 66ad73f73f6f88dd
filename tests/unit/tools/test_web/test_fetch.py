"""Fetching through the real proxy, from pages on loopback that mean no good."""

import gc
import os
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from stockade.core.errors import ActionFailed
from stockade.tools.fetch import Bounds, Fetched, ThroughProxy, fetch, parse
from stockade_sandbox.policy import MIB, Network
from tests.support.hostile_site import ARTICLE, Site, hostile_site
from tests.support.site import certificates

pytestmark = pytest.mark.anyio
SMALL = Bounds(total_s=20, body_bytes=2 * MIB, redirects=3)


@pytest.fixture
def site() -> Iterator[Site]:
    with hostile_site() as running:
        yield running


async def get(site: Site, url: str, bounds: Bounds = SMALL, network: Network | None = None) -> Fetched:
    return await fetch(ThroughProxy(site.egress(network)), parse(url), bounds)


async def why(site: Site, url: str, bounds: Bounds = SMALL, network: Network | None = None) -> str:
    with pytest.raises(ActionFailed) as failed:
        await get(site, url, bounds, network)
    assert failed.value.message.isprintable()
    assert len(failed.value.message) < 500
    return failed.value.message


async def test_a_page_and_its_event(site: Site) -> None:
    found = await get(site, site.url("/tea?x=1#part"))
    assert (found.type, found.charset, found.data, found.asked) == ("text/html", "utf-8", ARTICLE.encode(), 1)
    assert site.got == ["/tea?x=1"]
    (event,) = site.events
    assert (event.host, event.port, event.method, event.verdict, event.status) == (
        "good.test", site.port, "GET", "allowed", 200,
    )  # fmt: skip
    assert event.bytes_down > len(ARTICLE)


async def test_packed_pages(site: Site) -> None:
    assert (await get(site, site.url("/packed"))).data == ARTICLE.encode()


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/nothing", "good.test answers HTTP 404 Not Found"),
        ("/bomb", "larger than 2 MiB"),
        ("/endless", "larger than 2 MiB"),
        ("/promised", "larger than 2 MiB"),
        ("/brotli", "packed in a way"),
        ("/deflated", "packed in a way"),
        ("/gzip-broken", "packed, and broken"),
        ("/picture", "it is image/png, not text"),
        ("/loop", "more than 3 redirections"),
        ("/cut", "cannot be read"),
        ("/rubbish", "a control character in the first line"),
        ("/refused", "all is well"),  # a page may say it was refused, in its own words, as an error
        ("/go?to=file:///etc/passwd", "is not a web address"),
        ("/go?to=javascript:alert(1)", "is not a web address"),
        ("/go?to=http://user:pw@good.test/", "a user name before the host"),
        ("/go?to=http://evil.test/", "evil.test is not on the --net allow list"),
        ("/go?to=http://127.0.0.1/", "is an address"),
        ("/go?to=http://[::1]:8080/", "is an address"),
        ("/go?to=http://2130706433/", "is an address"),
        ("/go?to=http://0x7f.1/", "is an address"),
        ("/go?to=http://169.254.169.254/latest/meta-data/", "is an address"),
        ("/go?to=//localhost/", "localhost is not on the --net allow list"),
        ("/go?to=http://%00/", "a control character in the header Location"),
    ],
)
async def test_what_servers_do_against_it(site: Site, path: str, cause: str) -> None:
    said = await why(site, site.url(path))
    assert cause in said
    assert len(site.events) == len(site.got) + ("--net" in said or "is an address" in said)


async def test_a_name_that_leads_to_this_machine_is_refused_though_it_is_allowed(site: Site) -> None:
    """private.test is on the list, and on 127.0.0.1; so is what a page sends to it."""
    for path in (f"http://private.test:{site.port}/tea", site.url(f"/go?to=http://private.test:{site.port}/tea")):
        assert "which is not public" in await why(site, path)
    assert "/tea" not in site.got
    assert [event.verdict for event in site.events] == ["refused", "allowed", "refused"]


async def test_the_rules_are_those_of_net(site: Site) -> None:
    assert "not on the --net allow list" in await why(site, site.url("/tea"), network=Network())
    only = Network(mode="allow", hosts=("good.test:1",))
    assert "only other ports" in await why(site, site.url("/tea"), network=only)
    assert "--net open means ports 80 and 443" in await why(site, site.url("/tea"), network=Network(mode="open"))
    assert site.got == []
    assert [event.verdict for event in site.events] == ["refused"] * 3


async def test_redirections_are_followed_and_each_is_judged(site: Site) -> None:
    found = await get(site, site.url("/go?to=/go%3Fto%3D/tea"))
    assert str(found.address) == site.url("/tea")
    assert found.asked == 3
    assert [event.status for event in site.events] == [302, 302, 200]


@pytest.mark.parametrize("path", ["/drip", "/silent"])
async def test_slow_pages_end_in_time(site: Site, path: str) -> None:
    said = await why(site, site.url(path), Bounds(total_s=0.5))
    assert said == "good.test did not answer in full within 0.5 s"
    assert site.events[0].verdict == "allowed"


async def test_an_endless_page_is_left_and_not_read_to_its_end(site: Site) -> None:
    await why(site, site.url("/endless"))
    assert site.ended.wait(20)
    assert site.events[0].bytes_down < 100 * MIB


def pairs() -> int:
    """Sockets of this process that are ends of a pair; those of the site are TCP's."""
    known = {line.split()[6] for line in Path("/proc/self/net/unix").read_text().splitlines()[1:]}
    opened = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the site's threads close theirs meanwhile
            opened.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(name.removeprefix("socket:[").rstrip("]") in known for name in opened if name.startswith("socket:"))


async def test_a_fetch_that_is_cut_at_any_moment_leaves_no_socket(site: Site) -> None:
    await get(site, site.url("/tea"))
    before = pairs()
    for step in range(60):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cut(steps: int, scope: anyio.CancelScope = scope) -> None:
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                group.start_soon(cut, step)
                await get(site, site.url("/tea"))
                group.cancel_scope.cancel()
    gc.collect()
    assert pairs() == before


async def test_nobody_there(site: Site) -> None:
    network = Network(mode="allow", hosts=("good.test:1",))
    assert "cannot connect to good.test:1" in await why(site, "http://good.test:1/", network=network)


async def test_tls_with_a_certificate_of_ours_and_of_nobody(tmp_path: Path) -> None:
    certificates(tmp_path)
    trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with hostile_site(tmp_path / "site.pem") as site:
        url = site.url("/tea").replace("http:", "https:")
        found = await fetch(ThroughProxy(site.egress(), lambda: trusted), parse(url), SMALL)
        assert found.data == ARTICLE.encode()
        assert [(event.method, event.verdict) for event in site.events] == [("CONNECT", "allowed")]
        assert "has no valid certificate" in await why(site, url)
        assert "is not on the --net allow list" in await why(site, url.replace("good.test", "evil.test"))
        assert site.got == ["/tea"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://Example.ORG", "http://example.org/"),
        ("https://example.org:443/a b?q=ä#frag", "https://example.org/a%20b?q=%C3%A4"),
        ("https://example.org:8443/%41?x[]=1", "https://example.org:8443/%41?x[]=1"),
        ("http://bücher.example/x", "http://xn--bcher-kva.example/x"),
        ("example.org/x", "https://example.org/x"),
        ("http://[::1]/", "http://[::1]/"),  # the proxy refuses it
    ],
)
def test_addresses_have_one_spelling(text: str, expected: str) -> None:
    assert str(parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "   ", "http://a\nb/", "http://a b/", "file:///etc/passwd", "ftp://x.org", "x" * 3000,
     "data:text/html,x", "/etc/passwd", "http://", "http:///x", "http://u@h.org/", "http://u:p@h.org/",
     "http://h.org:99999/", "http://h.org:x/", "http://a\0b/", "http://h\\evil.org/", "http://[::1",
     "http://\ud800/", "http://h.org/\ud800", "http://a\u2100b/"],
)  # fmt: skip
def test_what_is_no_web_address(text: str) -> None:
    with pytest.raises(ActionFailed) as failed:
        parse(text)
    assert failed.value.message.isprintable()
