"""What package managers fetch from: an index of each kind with one package `tiny`, and a repository to push to."""

import base64
import functools
import hashlib
import http.server
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.site import content, run

MODULE = "good.test/tiny"


def indexes(root: Path, url: str) -> None:
    """Below `root`, which is seen at `url`: simple/, npm/, cargo/, go/, repo.git and a page."""
    content(root)
    run("git", "config", "http.receivepack", "true", cwd=root / "repo.git")
    _npm(root / "npm", f"{url}/npm")
    _cargo(root / "cargo", f"{url}/cargo")
    _go(root / "go")


def _tar(prefix: str, files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{prefix}/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def _npm(root: Path, url: str) -> None:
    about = {"name": "tiny", "version": "1.0.0", "main": "index.js"}
    data = _tar("package", {"package.json": json.dumps(about), "index.js": "module.exports = 'from the index'\n"})
    (root / "tiny-1.0.0.tgz").write_bytes(data)
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"
    version = {**about, "dist": {"tarball": f"{url}/tiny-1.0.0.tgz", "integrity": integrity}}
    packument = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (root / "tiny").write_text(json.dumps(packument))


def _cargo(root: Path, url: str) -> None:
    """https://doc.rust-lang.org/cargo/reference/registry-index.html"""
    manifest = '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
    data = _tar("tiny-1.0.0", {"Cargo.toml": manifest, "src/lib.rs": 'pub const FROM: &str = "from the index";\n'})
    line = {"name": "tiny", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
            "cksum": hashlib.sha256(data).hexdigest()}  # fmt: skip
    for name, text in (("config.json", {"dl": f"{url}/crates"}), ("ti/ny/tiny", line)):
        path = root / "index" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(text) + "\n")
    crate = root / "crates/tiny/1.0.0/download"
    crate.parent.mkdir(parents=True)
    crate.write_bytes(data)


def _go(root: Path) -> None:
    """https://go.dev/ref/mod#goproxy-protocol"""
    folder = root / MODULE / "@v"
    folder.mkdir(parents=True)
    (folder / "list").write_text("v1.0.0\n")
    (folder / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
    (folder / "v1.0.0.mod").write_text(f"module {MODULE}\n")
    with zipfile.ZipFile(folder / "v1.0.0.zip", "w") as file:
        file.writestr(f"{MODULE}@v1.0.0/go.mod", f"module {MODULE}\n")
        file.writestr(f"{MODULE}@v1.0.0/tiny.go", 'package tiny\n\nconst From = "from the index"\n')


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Files, and git's smart protocol for repo.git, which git's own program speaks."""

    protocol_version = "HTTP/1.1"
    root: Path

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if self.path.startswith("/repo.git/"):
            self._git(b"")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self._git(self._body())

    def _body(self) -> bytes:
        if (length := self.headers["Content-Length"]) is not None:
            return self.rfile.read(int(length))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _git(self, body: bytes) -> None:
        """As CGI (RFC 3875) has it: gitprotocol-http(5), git-http-backend(1)."""
        path, _, query = self.path.partition("?")
        told = {"REQUEST_METHOD": self.command, "QUERY_STRING": query, "PATH_INFO": path,
                "CONTENT_TYPE": self.headers["Content-Type"] or "", "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers["Content-Encoding"] or "",
                "GIT_PROTOCOL": self.headers["Git-Protocol"] or "", "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROJECT_ROOT": self.directory, "REMOTE_USER": "somebody"}  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=os.environ | told,
                              check=True)  # fmt: skip
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@contextmanager
def index_server(root: Path, tls: Path) -> Iterator[int]:
    """By TLS, with HTTP/1.1 said to be spoken (ALPN)."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(root)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls)
    context.set_alpn_protocols(["http/1.1"])
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
