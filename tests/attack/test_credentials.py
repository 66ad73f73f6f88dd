"""A key that never enters: programs inside use it, and none of them finds it, in no process, file or variable."""

import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from stockade.core.ports import Sandbox
from stockade_sandbox.backends.agent_sandbox import AgentSandbox
from stockade_sandbox.egress.authority import Authority
from stockade_sandbox.egress.inside import OnRequest
from stockade_sandbox.egress.proxy import Egress
from stockade_sandbox.egress.tls_streams import Tls
from stockade_sandbox.policy import CopyRule, Policy, parse_credential
from stockade_sandbox.processes import descendants
from stockade_sandbox.results import NetworkRequest
from tests.support.backends import BACKENDS, ready, sandbox_of
from tests.unit.sandboxes.test_egress.support import Net, echo, loopback, waiting_net

pytestmark = pytest.mark.anyio
OUTSIDE = Authority(["good.test"])
VALUE = "sk-real-9f8e7d6c5b4a3210"

LIBRARIES = ("requests", "urllib3", "certifi", "charset_normalizer", "idna", "httpx", "httpcore", "httpx2", "httpcore2",
             "h11", "anyio", "truststore", "typing_extensions")  # fmt: skip

HUNT = """
import os
needle = bytes(byte ^ 0x55 for byte in bytes.fromhex("%s"))
def look(where, data):
    if needle in data:
        print("FOUND", where)
def file(path, opener=None):
    try:
        with open(path, "rb") as found:
            look(path, found.read(1 << 26))
    except OSError:
        pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        file(f"/proc/{pid}/{name}")
    if int(pid) == os.getpid():
        continue
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(begin)
                look(f"/proc/{pid}/mem", memory.read(min(end - begin, 1 << 26)))
    except (OSError, ValueError, OverflowError):
        pass
for top, folders, names in os.walk("/"):
    if top == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "usr", "lib", "lib64", "bin", "sbin")]
    for name in names:
        path = os.path.join(top, name)
        if os.path.isfile(path) and not os.path.islink(path):
            file(path)
print("hunted")
""".replace("%s", bytes(byte ^ 0x55 for byte in VALUE.encode()).hex())
"""Every process's variables, words and memory, and every file but the system's own. It holds the key only disguised."""


def libraries() -> tuple[CopyRule, ...]:
    """What Python programs speak HTTP with, as it is installed for us."""
    found = [find_spec(name) for name in LIBRARIES]
    places = [Path(one.origin or "") for one in found if one]
    places = [place.parent if place.name == "__init__.py" else place for place in places]
    return tuple(CopyRule(host=str(place), inside=f"/copied/{place.name}") for place in places)


def in_memory(pids: list[int], needle: bytes) -> list[str]:
    """Where `needle` is in these processes, as root of this machine sees them; others see less."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
                for line in maps:
                    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                    if line.split()[-1] not in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
                        memory.seek(begin)
                        if needle in memory.read(end - begin):
                            found.append(f"{pid} {line.strip()}")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            if os.geteuid() == 0:
                raise
    return found


@dataclass
class Box:
    sandbox: Sandbox
    net: Net
    port: int
    events: list[NetworkRequest] = field(default_factory=list)

    async def sh(self, script: str) -> str:
        words = script.replace("PORT", str(self.port))
        done = await self.sandbox.exec(["/bin/bash", "-c", words], timeout_s=60)
        return (done.stdout + done.stderr).decode(errors="replace")

    def processes(self) -> list[int]:
        """Of the sandbox, as this machine numbers them."""
        assert isinstance(self.sandbox, AgentSandbox)
        pid = self.sandbox.host_pid
        assert pid is not None
        return list(descendants(pid))

    async def hunt(self) -> list[str]:
        done = await self.sandbox.exec(["/usr/bin/python3", "-"], HUNT.encode(), 120)
        lines = (done.stdout + done.stderr).decode().splitlines()
        assert lines[-1] == "hunted", lines
        return lines[:-1]


@asynccontextmanager
async def box(tmp_path: Path, backend: str, *, by_env: bool = False) -> AsyncIterator[Box]:
    """With a server behind good.test that gives back what it got; the key is inside only `by_env`."""

    def make(policy: Policy, on_request: OnRequest) -> Egress:
        return replace(Egress.of(policy, on_request), resolver=loopback, allow_private=lambda *_: True)

    async with waiting_net(patience_s=300) as net:
        port = await net.tls_origin(OUTSIDE.context("good.test"), answer)
        if by_env:
            policy = Policy(environment={"KEY": VALUE})
        else:
            policy = Policy(credentials=(parse_credential(f"KEY@good.test:{port}"),), copies=libraries())
        sandbox = sandbox_of(backend, policy, tmp_path / "base", make)
        made = Box(sandbox, net, port)
        sandbox.on_network = made.events.append
        async with sandbox:
            yield made


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    roots = tmp_path / "roots.pem"
    roots.write_bytes(OUTSIDE.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    ready(request.param, monkeypatch)
    monkeypatch.setenv("KEY", VALUE)
    return str(request.param)


LIBRARY = (
    'PYTHONPATH=/copied python3 -c \'import os, LIBRARY; print(LIBRARY.get("https://good.test:PORT/",'
    ' headers={"x-api-key": os.environ["KEY"]}).text)\''
)
CLIENTS = {
    "curl": 'curl -sS -H "Authorization: Bearer $KEY" https://good.test:PORT/',
    "curl that knows of no proxy": 'curl -sS --noproxy "*" -H "x-api-key: $KEY" https://good.test:PORT/',
    "curl of a base URL": 'curl -sS -H "x-api-key: $KEY" http://127.0.0.1:3128/credential/good.test:PORT/',
    "python": "python3 -c 'import os, urllib.request as u; print(u.urlopen(u.Request(\"https://good.test:PORT/\","
              ' headers={"x-api-key": os.environ["KEY"]})).read().decode())\'',
    "requests": LIBRARY.replace("LIBRARY", "requests"),
    "httpx": LIBRARY.replace("LIBRARY", "httpx"),
    "httpx2": LIBRARY.replace("LIBRARY", "httpx2"),
    "node, which knows no proxy": "node -e 'fetch(\"http://127.0.0.1:3128/credential/good.test:PORT/\","
              " {headers: {\"x-api-key\": process.env.KEY}}).then(r => r.text()).then(console.log)'",
    "git": 'git ls-remote "https://me:$KEY@good.test:PORT/r.git"',
}  # fmt: skip


async def answer(request: bytes, tls: Tls) -> None:
    """As `echo`, but git is asked for a name and a password first, as its servers do."""
    if b"/info/refs" in request and b"Authorization" not in request:
        await tls.send(b"HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n")
    else:
        await echo(request, tls)


async def test_programs_use_the_key_and_do_not_find_it(backend: str, tmp_path: Path) -> None:
    """While programs run that hold all that a sandbox has: their variables and an answer that gave the key back."""
    async with box(tmp_path, backend) as inside:
        for name, script in CLIENTS.items():
            told = await inside.sh(f"({script}) | tee -a /tmp/answers")
            sent = inside.net.got[-1]
            assert VALUE.encode() in sent or b64encode(f"me:{VALUE}".encode()) in sent, (name, told, sent)
            assert VALUE not in told, name
        await inside.sandbox.run("sleep 1000 & line=$(env; cat /tmp/answers); export line")
        assert await inside.hunt() == []
        assert in_memory(inside.processes(), VALUE.encode()) == []
        assert {event.credential for event in inside.events if event.status == 200} == {"KEY"}
        assert VALUE not in repr(inside.events)


async def test_the_hunt_finds_a_key_that_is_given_by_env(backend: str, tmp_path: Path) -> None:
    async with box(tmp_path, backend, by_env=True) as inside:
        await inside.sandbox.run("sleep 1000 & echo $KEY > /tmp/note")
        found = await inside.hunt()
        assert any("/environ" in line for line in found)
        assert "FOUND /tmp/note" in found
        if os.geteuid() == 0:
            assert in_memory(inside.processes(), VALUE.encode())
