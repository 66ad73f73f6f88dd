"""Real clients in a real sandbox: curl, git, pip, npm, Python; servers on loopback behind a name, plain and TLS."""

import functools
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stockade.core.actions import CommandOutput
from stockade.core.events import NetworkRequested
from stockade.core.policy import CopyRule, Network, Policy
from stockade.sandboxes.bubblewrap import BubblewrapSandbox
from stockade.sandboxes.egress.inside import OnRequest
from stockade.sandboxes.egress.proxy import Egress

pytestmark = pytest.mark.anyio


def run(*argv: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run([str(word) for word in argv], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def certificates(folder: Path) -> None:
    """ca.pem, and a key and certificate for good.test in site.pem."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("openssl", "req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Test", "-days", "2",
        "-addext", "keyUsage=critical,keyCertSign", cwd=folder)  # fmt: skip
    run("openssl", "req", *curve, "-keyout", "site.key", "-out", "site.csr", "-subj", "/CN=good.test", cwd=folder)
    (folder / "names").write_text("subjectAltName=DNS:good.test\n")
    run("openssl", "x509", "-req", "-in", "site.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
        "site.crt", "-days", "2", "-extfile", "names", cwd=folder)  # fmt: skip
    (folder / "site.pem").write_bytes((folder / "site.key").read_bytes() + (folder / "site.crt").read_bytes())


def content(root: Path) -> None:
    """A page, a package index with one wheel, a bare repository, an npm package."""
    (root / "page").write_text("hello\n")
    simple, wheel = root / "simple" / "tiny", root / "tiny-1.0-py3-none-any.whl"
    simple.mkdir(parents=True)
    program = (
        "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1], 'w')\nz.writestr('tiny.py', 'x = 1')\n"
        "z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n"
        "z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "z.writestr('tiny-1.0.dist-info/RECORD', '')\nz.close()"
    )
    run("python3", "-c", program, wheel)
    (simple / "index.html").write_text(f'<a href="../../{wheel.name}">{wheel.name}</a>')
    (root / "npm").mkdir()
    version = {"name": "tiny", "version": "1.0.0", "dist": {"tarball": "http://good.test/x.tgz", "shasum": "0"}}
    package = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (root / "npm" / "tiny").write_text(json.dumps(package))
    source = root / "source"
    run("git", "init", "-q", "-b", "main", source)
    (source / "file").write_text("cloned\n")
    identity = ("-c", "user.name=x", "-c", "user.email=x@x")
    run("git", "add", "file", cwd=source)
    run("git", *identity, "commit", "-q", "-m", "x", cwd=source)
    run("git", "clone", "-q", "--bare", source, root / "repo.git")
    run("git", "update-server-info", cwd=root / "repo.git")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def site(root: Path, tls: Path | None) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(root)))
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Place:
    root: Path
    keys: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("keys"))
    certificates(made.keys)
    content(made.root)
    return made


@dataclass
class Inside:
    box: BubblewrapSandbox
    url: str
    events: list[NetworkRequested]

    async def run(self, command: str) -> CommandOutput:
        return await self.box.run(command.replace("URL", self.url), 60)


def find(policy: Policy, on_request: OnRequest) -> Egress:
    async def resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    made = Egress.of(policy, on_request)
    return replace(made, resolver=resolver, allow_private=lambda host, address: host == "good.test")


@asynccontextmanager
async def inside(place: Place, base: Path, *, tls: bool) -> AsyncIterator[Inside]:
    with site(place.root, place.keys / "site.pem" if tls else None) as port:
        ca = "/copied/ca.pem"
        names = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "npm_config_cafile")
        policy = Policy(
            network=Network(mode="allow", hosts=(f"good.test:{port}",)),
            copies=(CopyRule(host=str(place.keys / "ca.pem"), inside=ca),),
            environment={**dict.fromkeys(names, ca), "npm_config_fetch_retries": "0"},
        )
        box = BubblewrapSandbox(policy, (), base, find)
        found = Inside(box, f"http{'s' if tls else ''}://good.test:{port}", [])
        box.on_network = found.events.append
        async with box:
            yield found


PIP = "/usr/bin/python3 -m pip download --disable-pip-version-check"
COMMANDS = {
    "curl": ("curl -sSf --max-time 20 URL/page", b"hello\n"),
    "curl, a body": ("head -c 3000000 /dev/zero | curl -sSf --data-binary @- URL/x | wc -c", b"3000000\n"),
    "git": ("cd /tmp && git clone -q URL/repo.git got && cat got/file", b"cloned\n"),
    "pip": (
        f"cd /tmp && {PIP} --no-cache-dir --trusted-host good.test --index-url URL/simple/ tiny >&2 && ls *.whl",
        b"tiny-1.0-py3-none-any.whl\n",
    ),
    "npm": (
        "cd /tmp && npm view --registry=URL/npm --no-audit --no-update-notifier --prefer-online tiny version",
        b"1.0.0\n",
    ),
    "urllib": (
        '/usr/bin/python3 -c \'import urllib.request as u; print(u.urlopen("URL/page").read().decode(), end="")\'',
        b"hello\n",
    ),
}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_clients_get_what_is_on_the_list(place: Place, tmp_path: Path, *, tls: bool) -> None:
    async with inside(place, tmp_path, tls=tls) as found:
        for name, (command, expected) in COMMANDS.items():
            output = await found.run(command)
            assert (output.stdout, output.exit_code) == (expected, 0), (name, output)
    assert len(found.events) >= len(COMMANDS)
    for event in found.events:
        assert (event.verdict, event.host, event.method == "CONNECT") == ("allowed", "good.test", tls)
    assert max(event.bytes_up for event in found.events) > 3_000_000 < max(event.bytes_down for event in found.events)


REFUSED = {
    "curl, plain": ("curl -sS http://evil.test/", "stockade: evil.test is not on the --net allow list"),
    "curl, TLS": ("curl -sS https://evil.test/", "403"),
    "git": ("git clone -q https://evil.test/repo.git /tmp/x", "403"),
    "pip": (
        f"{PIP} --retries 1 --index-url https://evil.test/simple/ x",
        "stockade: evil.test is not on the --net allow list",
    ),
    "urllib": (
        "/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://evil.test/\")'",
        "stockade: evil.test is not on the --net allow list",
    ),
}


async def test_clients_say_why_they_got_nothing(place: Place, tmp_path: Path) -> None:
    async with inside(place, tmp_path, tls=False) as found:
        for name, (command, words) in REFUSED.items():
            output = await found.run(command)
            assert words in output.output.decode(), (name, output)
            assert found.events[-1].verdict == "refused"


async def test_loopback_inside_needs_no_proxy(place: Place, tmp_path: Path) -> None:
    async with inside(place, tmp_path, tls=False) as found:
        serve = "cd /tmp && echo own > own && /usr/bin/python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &"
        await found.run(serve)
        output = await found.run("curl -sSf --retry 30 --retry-connrefused --retry-delay 1 http://localhost:8000/own")
        assert output.stdout == b"own\n"
        assert found.events == []
