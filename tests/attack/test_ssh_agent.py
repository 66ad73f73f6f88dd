"""The ssh-agent that a sandbox was lent: what a hostile program inside says to it, and what comes of it outside."""

import base64
import getpass
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from stockade.core.ports import Sandbox
from stockade_sandbox import registry
from stockade_sandbox.policy import Policy, parse_ssh_account
from stockade_sandbox.results import NetworkRequest
from tests.support.backends import BACKENDS, ready, sandbox_of
from tests.support.ssh import Ssh, ssh_server

pytestmark = pytest.mark.anyio
ME = getpass.getuser().encode()
SESSION = b"s" * 32
SAY = """
import json, socket, sys, time
for conversation in json.load(sys.stdin):
    agent = socket.socket(socket.AF_UNIX)
    while True:
        try:
            agent.connect("/tmp/.ssh-agent")
            break
        except BlockingIOError:  # gVisor says so while others wait to be accepted
            time.sleep(0.05)
    answers, file = [], agent.makefile("rwb")
    for message in conversation:
        data = bytes.fromhex(message)
        file.write(len(data).to_bytes(4, "big") + data)
        file.flush()
        size = file.read(4)
        answers.append(file.read(int.from_bytes(size, "big")).hex() if size else "gone")
    print(json.dumps(answers))
    agent.close()
"""
FAILURE, SUCCESS, SIGNED = "05", "06", "0e"


def text(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4) + value for value in values)


def public(path: Path) -> bytes:
    return base64.b64decode(path.with_suffix(".pub").read_text().split()[1])


def bind(key: Path, session: bytes = SESSION, *, signer: Path | None = None, forwarding: int = 0) -> bytes:
    """As the connection's own client says it after the host has signed."""
    private = load_ssh_private_key((signer or key).read_bytes(), None)
    assert isinstance(private, Ed25519PrivateKey)
    signature = text(b"ssh-ed25519", private.sign(session))
    return b"\x1b" + text(b"session-bind@openssh.com", public(key), session, signature) + bytes([forwarding])


def login(key: Path, *, user: bytes = ME, session: bytes = SESSION, host: bytes = b"", flags: int = 0) -> bytes:
    """What is to be signed. `host`: with the host's key in it, as OpenSSH's newer servers have it."""
    method = b"publickey-hostbound-v00@openssh.com" if host else b"publickey"
    data = text(session) + b"\x32" + text(user, b"ssh-connection", method) + b"\x01"
    data += text(b"ssh-ed25519", public(key), *((host,) if host else ()))
    return b"\x0d" + text(public(key), data) + flags.to_bytes(4)


@dataclass
class Lent:
    ssh: Ssh
    sandbox: Sandbox
    events: list[NetworkRequest] = field(default_factory=list)

    async def say(self, *messages: bytes) -> list[str]:
        """On one connection; the first byte of each answer."""
        return (await self.say_all([messages]))[0]

    async def say_all(self, conversations: Sequence[tuple[bytes, ...]]) -> list[list[str]]:
        words = json.dumps([[message.hex() for message in one] for one in conversations]).encode()
        done = await self.sandbox.exec(["/usr/bin/python3", "-c", SAY], words, 120)
        assert done.exit_code == 0, done.stderr
        return [[one[:2] for one in json.loads(line)] for line in done.stdout.splitlines()]

    @property
    def refused(self) -> list[str]:
        return [event.reason for event in self.events if event.verdict == "refused"]

    @property
    def signed(self) -> int:
        return sum(event.verdict == "allowed" for event in self.events)


@pytest.fixture(params=BACKENDS)
async def lent(
    request: pytest.FixtureRequest, tmp_path: Path, _own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Lent]:
    ready(request.param, monkeypatch)
    monkeypatch.setenv("HOME", str(_own_home))
    (folder := tmp_path / "ssh").mkdir()
    with ssh_server(folder, _own_home, monkeypatch) as ssh:
        policy = Policy(ssh_agent=(parse_ssh_account(ssh.account),))
        found = Lent(ssh, sandbox_of(request.param, policy, tmp_path / "base", registry.egress))
        found.sandbox.on_network = found.events.append
        async with found.sandbox:
            yield found


async def test_a_login_to_the_account_is_signed_once(lent: Lent) -> None:
    """What all below is compared with."""
    host, user = lent.ssh.folder / "host", lent.ssh.folder / "user"
    assert await lent.say(bind(host), login(user), login(user)) == [SUCCESS, SIGNED, FAILURE]
    assert await lent.say(bind(host), login(user, host=public(host))) == [SUCCESS, SIGNED]
    assert (lent.signed, lent.refused) == (2, ["a second signature for one connection"])


async def test_nothing_else_is_signed(lent: Lent) -> None:
    host, user, other = (lent.ssh.folder / name for name in ("host", "user", "other"))
    elsewhere = bind(host, b"t" * 32).replace(b"t" * 32, SESSION)
    file = b"SSHSIG" + text(b"git", b"", b"x")
    attacks = {
        "no connection was shown": (login(user),),
        "another host that the user knows": (bind(other), login(user)),
        "its key, signed by another": (bind(host, signer=other), login(user)),
        "its signature of something else": (elsewhere, login(user)),
        "another connection": (bind(host), login(user, session=b"t" * 32)),
        "a second connection": (bind(host), bind(host, b"t" * 32), login(user, session=b"t" * 32)),
        "a forwarded agent": (bind(host, forwarding=1), login(user)),
        "another user": (bind(host), login(user, user=b"somebody")),
        "another host's key inside": (bind(host), login(user, host=public(other))),
        "another key inside": (bind(host), login(user).replace(public(user), public(other), 1)),
        "other bytes": (bind(host), b"\x0d" + text(public(user), b"tree 1234") + bytes(4)),
        "a signature of a file": (bind(host), b"\x0d" + text(public(user), file) + bytes(4)),
        "odd flags": (bind(host), login(user, flags=1)),
        "more than a log-in": (bind(host), login(user)[:-4] + b"\0" * 4 + login(user)[-4:]),
        "a short message": (bind(host), login(user)[:20]),
    }  # fmt: skip
    answers = dict(zip(attacks, await lent.say_all(list(attacks.values())), strict=True))
    assert {name: found[-1] for name, found in answers.items()} == dict.fromkeys(attacks, FAILURE)
    assert lent.signed == 0
    assert len(lent.refused) >= len(attacks)


async def test_its_keys_stay_as_they_are(lent: Lent) -> None:
    """Locked, emptied, added to, asked for extensions, and talked to in no language at all."""
    kinds = [b"\x01", b"\x09", *(bytes([kind]) + text(b"x") for kind in (*range(17, 27), 0, 255))]
    query = b"\x1b" + text(b"restrict-destination-v00@openssh.com")
    for answer in await lent.say_all([(one,) for one in (*kinds, query)]):
        assert answer == [FAILURE]
    huge = "import socket; a = socket.socket(1); a.connect('/tmp/.ssh-agent'); a.send(b'\\xff' * 8); print(a.recv(9))"
    done = await lent.sandbox.exec(["/usr/bin/python3", "-c", huge], timeout_s=60)
    assert done.stdout == b"b''\n", done.stderr
    assert lent.ssh.listed().count("secret comment") == lent.ssh.listed().count("\n") == 1
    assert len(lent.refused) == len(kinds) + 1


async def test_a_flood_is_on_record_and_leaves_it_as_it_was(lent: Lent) -> None:
    host, user = lent.ssh.folder / "host", lent.ssh.folder / "user"
    bad = [(login(user), b"\x16" + text(b"x"))] * 1000
    assert set(map(tuple, await lent.say_all(bad))) == {(FAILURE, FAILURE)}
    assert len(lent.refused) == 2000
    idle = (
        "import socket\nopen = []\nfor _ in range(300):\n a = socket.socket(1); a.setblocking(False)\n"
        " a.connect_ex('/tmp/.ssh-agent'); open.append(a)\nprint(len(open))"
    )
    done = await lent.sandbox.exec(["/usr/bin/python3", "-c", idle], timeout_s=60)
    assert done.stdout == b"300\n", done.stderr
    assert await lent.say(bind(host), login(user)) == [SUCCESS, SIGNED]
