"""Secrets that the proxy puts in, between real sockets: curl as the client inside, a TLS server of ours outside."""

import base64
import os
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from stockade_sandbox.egress.authority import Authority
from stockade_sandbox.egress.credentials import Credentials
from stockade_sandbox.egress.relay import Cut, Mask
from stockade_sandbox.egress.tls_streams import Tls, connect_tls
from stockade_sandbox.egress.trust import BUNDLE
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import Credential, Network, Policy, parse_credential
from stockade_sandbox.results import NetworkRequest
from tests.unit.sandboxes.test_egress.support import Answer, Net, echo, waiting_net

pytestmark = pytest.mark.anyio
VALUE = "sk-real/0123456789abcdef"
ELSEWHERE = "the credential KEY goes to good.test:PORT by TLS only"
MARK = "*" * len(VALUE)
OUTSIDE = Authority(["good.test", "other.test"])
"""Whom the machine trusts that the proxy is on."""


@dataclass
class World:
    """`bundle` and `variables` are what is inside; `got` what the server received, in the order of connections."""

    net: Net
    port: int
    bundle: Path
    variables: dict[str, str]
    got: list[bytes]
    sentinel: str = field(init=False)

    def __post_init__(self) -> None:
        self.sentinel = self.variables["KEY"]

    async def curl(self, *words: str) -> str:
        """What a program inside gets, head and body."""
        where = [word.replace("SENTINEL", self.sentinel).replace("PORT", str(self.port)) for word in words]
        proxy = f"http://127.0.0.1:{self.net.port}"
        variables = {"PATH": os.environ["PATH"], "https_proxy": proxy, "http_proxy": proxy}
        argv = [
            "curl",
            "-sS",
            "-i",
            "--suppress-connect-headers",
            "--cacert",
            str(self.bundle),
            "--max-time",
            "15",
            *where,
        ]
        done = await anyio.to_thread.run_sync(lambda: subprocess.run(argv, env=variables, capture_output=True))
        return (done.stdout + done.stderr).decode()

    async def events(self, count: int = 1) -> list[NetworkRequest]:
        """What was reported, which is after the client has its answer."""
        while len(self.net.events) < count:  # noqa: ASYNC110  (the proxy tells by a plain call)
            await anyio.sleep(0.01)
        return self.net.events

    @asynccontextmanager
    async def tunnel(self, name: str = "good.test", host: str = "good.test") -> AsyncIterator[Tls]:
        """The TLS inside a CONNECT, as a client has it that trusts the bundle."""
        async with await self.net.connect() as stream:
            where = f"{host}:{self.port}"
            await stream.send(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            assert b" 200 " in await stream.receive()
            async with await connect_tls(stream, name, ssl.create_default_context(cafile=str(self.bundle))) as tls:
                yield tls


@asynccontextmanager
async def world(
    tmp_path: Path, *texts: str, answer: Answer = echo, certificate: str = "good.test", trusted: bool = True
) -> AsyncIterator[World]:
    """`texts` are credentials; PORT in them is the server's."""
    outside = OUTSIDE if trusted else Authority(["good.test"])
    async with waiting_net() as made:
        port = await made.tls_origin(outside.context(certificate), answer)
        wanted = [parse_credential(text.replace("PORT", str(port))) for text in texts]
        credentials = Credentials(wanted)
        inside = credentials.put_into(Policy())
        (tmp_path / "ca.pem").write_text(inside.files[BUNDLE])
        made.begin(credentials)
        yield World(made, port, tmp_path / "ca.pem", inside.environment, made.got)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    roots.write_bytes(OUTSIDE.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    monkeypatch.setenv("KEY", VALUE)


@pytest.mark.parametrize(
    ("words", "header"),
    [
        (["-H", "Authorization: Bearer SENTINEL"], f"Authorization: Bearer {VALUE}"),
        (["-H", "x-api-key: SENTINEL"], f"X-Api-Key: {VALUE}"),
        (["-u", "me:SENTINEL"], f"Authorization: Basic {base64.b64encode(f'me:{VALUE}'.encode()).decode()}"),
    ],
)
@pytest.mark.parametrize(
    "where", ["https://good.test:PORT/v1?a=b", "http://127.0.0.1:PROXY/credential/good.test:PORT/v1?a=b"]
)
async def test_the_value_is_put_in_and_hidden_in_the_answer(
    words: list[str], header: str, where: str, tmp_path: Path
) -> None:
    async with world(tmp_path, "KEY@good.test:PORT") as w:
        address = where.replace("PROXY", str(w.net.port))
        plain = ["--noproxy", "127.0.0.1"] if "credential" in where else []
        answer = await w.curl(*plain, *words, "-H", "Accept-Encoding: gzip", address)
        head = w.got[0].decode()
        assert header.lower() in head.lower()
        assert head.startswith("GET /v1?a=b HTTP/1.1\r\n")
        assert f"Host: good.test:{w.port}\r\n" in head
        assert "Accept-Encoding: identity" in head
        assert "gzip" not in head
        assert "200 OK" in answer
        secret = header.rpartition(" ")[2]
        assert secret not in answer
        assert answer.count("*" * len(secret)) == 2
        (event,) = await w.events()
        assert (event.host, event.port, event.method, event.verdict, event.status, event.credential) == (
            "good.test", w.port, "GET", "allowed", 200, "KEY",
        )  # fmt: skip
        assert VALUE not in repr(event)


async def test_a_named_header_is_set_whatever_stands_there(tmp_path: Path) -> None:
    async with world(tmp_path, "KEY@good.test:PORT:x-api-key") as w:
        await w.curl("-H", "X-API-Key: mine", "https://good.test:PORT/")
        assert f"x-api-key: {VALUE}\r\n" in w.got[0].decode()
        assert b"mine" not in w.got[0]


async def test_authorization_by_name_is_a_bearers_unless_the_program_has_its_own_form(tmp_path: Path) -> None:
    async with world(tmp_path, "KEY@good.test:PORT:Authorization") as w:
        await w.curl("https://good.test:PORT/")
        await w.curl("-H", "Authorization: token SENTINEL", "https://good.test:PORT/")
        assert f"\r\nAuthorization: Bearer {VALUE}\r\n" in w.got[0].decode()
        assert f"\r\nAuthorization: token {VALUE}\r\n" in w.got[1].decode()


def test_what_stands_for_a_token_of_github_looks_like_one() -> None:
    assert parse_credential("GH_TOKEN@api.github.com").sentinel.startswith("github_pat_stockade-GH_TOKEN-")
    assert parse_credential("MY_KEY@api.github.com").sentinel.startswith("stockade-MY_KEY-")


async def test_without_the_sentinel_nothing_is_put_in(tmp_path: Path) -> None:
    async with world(tmp_path, "KEY@good.test:PORT") as w:
        await w.curl("-d", "SENTINEL", "https://good.test:PORT/SENTINEL")
        assert VALUE.encode() not in w.got[0]
        assert (await w.events())[0].credential == ""


async def test_a_stream_passes_piece_by_piece(tmp_path: Path) -> None:
    """The second event is sent when the client has the first."""
    seen = anyio.Event()

    async def events(_: bytes, tls: Tls) -> None:
        await tls.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await tls.send(b"9\r\ndata: 1\n\n\r\n")
        await seen.wait()
        await tls.send(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    async with world(tmp_path, "KEY@good.test:PORT", answer=events) as w, w.tunnel() as tls:
        await tls.send(f"GET / HTTP/1.1\r\nHost: good.test:{w.port}\r\nX: {w.sentinel}\r\n\r\n".encode())
        data = b""
        while b"data: 1" not in data:
            data += await tls.receive()
        seen.set()
        while b"data: 2" not in data:
            data += await tls.receive()


async def test_one_connection_carries_many_requests(tmp_path: Path) -> None:
    async with world(tmp_path, "KEY@good.test:PORT") as w:
        head, post = ["-H", "X: SENTINEL"], ["-d", "a=1", "-H", "Expect: 100-continue"]
        urls = ["https://good.test:PORT/1", "--next", "-sS", "-i", "--cacert", str(w.bundle), *head, *post]
        answer = await w.curl(*head, *urls, "https://good.test:PORT/2")
        answer += await w.curl("--head", *head, "https://good.test:PORT/3")
        assert answer.count("200 OK") == 3
        assert [got.split(b" HTTP")[0] for got in w.got] == [b"GET /1", b"POST /2", b"HEAD /3"]
        assert w.got[1].endswith(b"\r\n\r\na=1")
        assert {event.method for event in await w.events(3)} == {"GET", "POST", "HEAD"}


async def test_a_websocket_passes_both_ways_with_the_value_hidden(tmp_path: Path) -> None:
    async def talk(request: bytes, tls: Tls) -> None:
        assert b"permessage-deflate" not in request
        await tls.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while True:
            await tls.send(await tls.receive() + VALUE.encode())

    async with world(tmp_path, "KEY@good.test:PORT", answer=talk) as w, w.tunnel() as tls:
        asks = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
        key = f"Authorization: Bearer {w.sentinel}\r\n"
        await tls.send(f"GET /ws HTTP/1.1\r\nHost: good.test:{w.port}\r\n{asks}{key}\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += await tls.receive()
        assert data.startswith(b"HTTP/1.1 101 ")
        await tls.send(b"\x81\x02hi")
        data = b""
        while len(data) < 4 + len(VALUE):
            data += await tls.receive()
        assert data == b"\x81\x02hi" + MARK.encode()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-H", "Authorization: Bearer SENTINEL", "http://other.test/"], ELSEWHERE),
        (["-u", "me:SENTINEL", "http://other.test/"], ELSEWHERE),
        (["http://other.test/?key=SENTINEL"], ELSEWHERE),
        (["-H", "X: SENTINEL", "http://good.test/"], ELSEWHERE),
        (["http://good.test:PORT/"], "is a credential's host: by TLS only"),
        (["-H", "Host: other.test", "-H", "X: SENTINEL", "https://good.test:PORT/"], "the Host header says other.test"),
        (["--noproxy", "*", "http://127.0.0.1:PROXY/credential/other.test/"], "no credential for other.test:443"),
    ],
)  # fmt: skip
async def test_what_is_on_its_way_elsewhere_is_refused_and_named(words: list[str], reason: str, tmp_path: Path) -> None:
    async with world(tmp_path, "KEY@good.test:PORT") as w:
        answer = await w.curl(*(word.replace("PROXY", str(w.net.port)) for word in words))
        assert reason.replace("PORT", str(w.port)) in answer
        (event,) = await w.events()
        assert (event.verdict, event.credential) == ("refused", "")
        assert reason.replace("PORT", str(w.port)) in event.reason
        assert w.got == []


async def test_a_sentinel_of_another_hosts_credential_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER", "another-secret-value")
    async with world(tmp_path, "KEY@good.test:PORT", "OTHER@other.test") as w:
        stray = w.variables["OTHER"]
        answer = await w.curl("-H", f"X: {stray}", "-H", "Y: SENTINEL", "https://good.test:PORT/")
        assert "the credential OTHER goes to other.test:443 by TLS only" in answer
        assert w.got == []


async def test_another_name_in_the_client_hello_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, "KEY@good.test:PORT") as w:
        with pytest.raises((ssl.SSLError, *Cut)):
            async with w.tunnel(name="other.test"):
                pass
        await anyio.wait_all_tasks_blocked()
        assert [event.reason for event in w.net.events] == [
            "the TLS ClientHello names other.test, the CONNECT good.test"
        ]


@pytest.mark.parametrize(("certificate", "trusted"), [("other.test", True), ("good.test", False)])
async def test_a_server_that_is_not_the_host_gets_nothing(certificate: str, trusted: bool, tmp_path: Path) -> None:
    async with world(tmp_path, "KEY@good.test:PORT", certificate=certificate, trusted=trusted) as w:
        answer = await w.curl("-H", "X: SENTINEL", "https://good.test:PORT/")
        assert "the certificate of good.test does not hold" in answer
        assert not any(w.got)


async def test_other_hosts_pass_unread(tmp_path: Path) -> None:
    """The client sees the certificate of the server itself."""
    async with world(tmp_path, "KEY@other.test", certificate="good.test") as w:
        w.bundle.write_bytes(OUTSIDE.certificate)
        answer = await w.curl("-H", "X: SENTINEL", "https://good.test:PORT/")
        assert "200 OK" in answer
        assert w.sentinel.encode() in w.got[0]
        assert [event.method for event in await w.events()] == ["CONNECT"]


async def test_the_authority_speaks_for_the_credentials_hosts_only(tmp_path: Path) -> None:
    """One who trusts it is not deceived about another host by whoever might have its key."""
    authority = Authority(["good.test"])
    roots = tmp_path / "ca.pem"
    roots.write_bytes(authority.certificate)
    for name, holds in (("good.test", True), ("evil.test", False)):
        client = ssl.create_default_context(cafile=str(roots))
        here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [client.wrap_bio(here, there, server_hostname=name),
                authority.context(name).wrap_bio(there, here, server_side=True)]  # fmt: skip
        problem = ""
        for _ in range(3):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLCertVerificationError as error:
                    problem = error.verify_message
                except ssl.SSLError:
                    continue
        assert (problem == "") is holds, (name, problem)
        assert holds or "permitted subtree" in problem


@pytest.mark.parametrize("cut", range(1, len(VALUE) + 4))
def test_a_secret_is_hidden_wherever_it_is_cut(cut: int) -> None:
    text = b"s" + VALUE.encode() + b"sk-"
    mask = Mask([VALUE.encode()])
    assert mask.feed(text[:cut]) + mask.feed(text[cut:]) + mask.rest() == b"s" + MARK.encode() + b"sk-"


def test_text_that_begins_no_secret_is_not_kept_back() -> None:
    assert Mask([VALUE.encode()]).feed(b"data: 1\n\n") == b"data: 1\n\n"


async def test_a_file_is_read_anew_and_a_command_after_it_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade_sandbox.egress.credentials._RETRY_S", -1.0)
    (tmp_path / "one").write_text("first-of-file\n")
    (tmp_path / "two").write_text("first-of-command\n")

    async def no(_: bytes, tls: Tls) -> None:
        await tls.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    texts = (f"KEY=file:{tmp_path}/one@good.test:PORT:x-file", f"B=exec:cat {tmp_path}/two@good.test:PORT:x-command")
    async with world(tmp_path, *texts, answer=no) as w:
        for name in ("one", "two"):
            await w.curl("https://good.test:PORT/")
            (tmp_path / name).write_text(f"next-{name}")
        await w.curl("https://good.test:PORT/")
        found = [re.findall(rb"x-\w+: ([\w-]+)", got) for got in w.got]
        assert found == [
            [b"first-of-file", b"first-of-command"], [b"next-one", b"first-of-command"], [b"next-one", b"next-two"],
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ("NONE@good.test", None, "--credential NONE: the variable is not set here"),
        ("KEY@good.test", "", "--credential KEY: the value is empty"),
        ("KEY@good.test", "sk-tiny", "--credential KEY: the value is shorter than 8 characters"),
        ("KEY@good.test", "line\r\nX-Other: 1", "--credential KEY: the value has characters that no header's key has"),
        ("KEY@10.0.0.1", VALUE, "10.0.0.1 is an address"),
        ("KEY=file:/nowhere@good.test", VALUE, "--credential KEY: /nowhere: No such file or directory"),
        ("KEY=exec:exit 3@good.test", VALUE, "--credential KEY: its command ended with status 3"),
    ],
)
def test_a_value_that_cannot_be_had_is_one_line(
    text: str, value: str | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("KEY", value)
    with pytest.raises(UsageError, match=re.escape(problem)) as caught:
        Credentials([parse_credential(text)])
    assert "\n" not in caught.value.message
    assert not value or value not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "KEY", "KEY@", "@good.test", "1KEY@good.test", "KEY@good.test/path", "KEY@*.good.test",
     "KEY@good.test:99:Host", "KEY@good.test:a b", "KEY=other:x@good.test", "KEY@http://good.test"],
)  # fmt: skip
def test_what_is_no_credential_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\(write |\(letters"):
        parse_credential(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("K@h.test", Credential(name="K", host="h.test")),
        ("K@h.test:x-api-key", Credential(name="K", host="h.test", header="x-api-key")),
        ("K@h.test:8443", Credential(name="K", host="h.test:8443")),
        ("K@h.test:8443:X-Key", Credential(name="K", host="h.test:8443", header="X-Key")),
        ("K=exec:pass me@work: key@h.test", Credential(name="K", host="h.test", source="exec:pass me@work: key")),
    ],
)
def test_the_grammar(text: str, found: Credential) -> None:
    assert parse_credential(text) == found


def test_a_credential_has_its_host_on_the_list() -> None:
    keys = (Credential(name="K", host="H.test"),)
    assert Policy(credentials=keys).network == Network(mode="allow", hosts=("h.test:443",))
    named = Policy(credentials=keys, network=Network(mode="allow", hosts=("pypi.org",)))
    assert replace(named, network=named.network).network.hosts == ("pypi.org", "h.test:443")
    assert Policy(credentials=keys, network=Network(mode="open")).network == Network(mode="open")


def test_programs_with_a_base_url_are_told_it(tmp_path: Path) -> None:
    keys = [
        Credential(name="KEY", host="api.openai.com"),
        Credential(name="ANTHROPIC_API_KEY", host="llm.example:8443"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", VALUE)
        found = Credentials(keys).put_into(Policy(environment={"OPENAI_API_BASE": "mine"})).environment
    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:3128/credential/api.openai.com/v1"
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:3128/credential/llm.example:8443"
    assert found["OPENAI_API_BASE"] == "mine"
    assert VALUE not in repr(found)
