"""What real clients ask for: a page, a package index, a repository and an npm package, on loopback, plain and TLS."""

import functools
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stockade_sandbox.egress.inside import OnRequest
from stockade_sandbox.egress.proxy import Egress
from stockade_sandbox.policy import Policy


def run(*argv: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run([str(word) for word in argv], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def certificates(folder: Path, name: str = "good.test") -> None:
    """ca.pem, and a key and certificate for `name` in site.pem."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("openssl", "req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Test", "-days", "2",
        "-addext", "keyUsage=critical,keyCertSign", cwd=folder)  # fmt: skip
    run("openssl", "req", *curve, "-keyout", "site.key", "-out", "site.csr", "-subj", f"/CN={name}", cwd=folder)
    (folder / "names").write_text(f"subjectAltName=DNS:{name}\n")
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


def to_loopback(policy: Policy, on_request: OnRequest) -> Egress:
    """The real proxy, for which every name is on loopback, and only good.test may be."""

    async def resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    made = Egress.of(policy, on_request)
    return replace(made, resolver=resolver, allow_private=lambda host, address: host == "good.test")
