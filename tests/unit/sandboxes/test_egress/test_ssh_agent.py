"""What the relay of the ssh-agent believes, and when: signatures of each kind, the user's known_hosts, the record."""

import base64
import socket
import subprocess
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from stockade_sandbox.egress.rules import Refused
from stockade_sandbox.egress.ssh_agent import SshAgent, check_signature, fingerprint, known_keys
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import SshAccount, parse_ssh_account
from stockade_sandbox.results import NetworkRequest

ACCOUNT = SshAccount(user="git", host="good.test", port=2222)
SESSION = b"session" * 4


def text(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4) + value for value in values)


def mpint(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1)


def public(key: "ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey") -> bytes:
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(line.split()[1])


def signed(kind: str) -> tuple[bytes, bytes]:
    """The public key and its signature of SESSION."""
    if kind == "ed25519":
        edwards = ed25519.Ed25519PrivateKey.generate()
        return public(edwards), text(b"ssh-ed25519", edwards.sign(SESSION))
    if kind.startswith("nistp"):
        curve = {"nistp256": ec.SECP256R1(), "nistp384": ec.SECP384R1(), "nistp521": ec.SECP521R1()}[kind]
        hash_ = {"nistp256": hashes.SHA256(), "nistp384": hashes.SHA384(), "nistp521": hashes.SHA512()}[kind]
        elliptic = ec.generate_private_key(curve)
        parts = decode_dss_signature(elliptic.sign(SESSION, ec.ECDSA(hash_)))
        return public(elliptic), text(f"ecdsa-sha2-{kind}".encode(), text(*map(mpint, parts)))
    classic = rsa.generate_private_key(65537, 2048)
    algorithm = {"rsa-sha2-256": hashes.SHA256(), "rsa-sha2-512": hashes.SHA512(), "ssh-rsa": hashes.SHA1()}[kind]
    return public(classic), text(kind.encode(), classic.sign(SESSION, padding.PKCS1v15(), algorithm))


@pytest.mark.parametrize("kind", ["ed25519", "nistp256", "nistp384", "nistp521", "rsa-sha2-256", "rsa-sha2-512"])
def test_a_hosts_signature_is_of_its_key_and_of_that_session(kind: str) -> None:
    key, signature = signed(kind)
    check_signature(key, signature, SESSION)
    broken = (
        (key, signature, SESSION + b"x"), (signed(kind)[0], signature, SESSION),
        (key, signature[:-1] + bytes([signature[-1] ^ 1]), SESSION), (key, signature + b"\0", SESSION),
        (key, signature[:-1], SESSION), (key, b"", SESSION), (key, text(signature[4:11], b""), SESSION),
    )  # fmt: skip
    for one in broken:
        with pytest.raises(Refused):
            check_signature(*one)


def test_sha_1_is_none() -> None:
    with pytest.raises(Refused, match="of a kind that is not checked"):
        check_signature(*signed("ssh-rsa"), SESSION)


def test_known_hosts_are_read_as_ssh_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    file = tmp_path / ".ssh/known_hosts"
    with pytest.raises(UsageError, match=r"no key of good\.test is in your known_hosts"):
        known_keys(ACCOUNT)
    mine, older, wrong = (signed("ed25519")[0] for _ in range(3))
    lines = [
        f"{host} ssh-ed25519 {base64.b64encode(key).decode()}"
        for host, key in (("[good.test]:2222", mine), ("[*.test]:2222", older), ("good.test", wrong),
                          ("[other.test]:2222,!x", wrong), ("@cert-authority [good.test]:2222", wrong),
                          ("@revoked [good.test]:2222", older))
    ]  # fmt: skip
    file.write_text("# mine\n\n" + "\n".join(lines) + "\n[good.test]:2222 ssh-ed25519 not base64\n")
    assert known_keys(ACCOUNT) == {mine}
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert "[good.test]" not in file.read_text().splitlines()[2]
    assert known_keys(ACCOUNT) == {mine}


@pytest.mark.parametrize(
    "text", ["git", "@host", "git@", "git@host:0", "git@host:65536", "git@10.0.0.1", "-o@host", "a b@host", "git@h/x"]
)
def test_what_is_no_account(text: str) -> None:
    with pytest.raises(ValueError, match="is no account of a host"):
        parse_ssh_account(text)


@pytest.mark.anyio
async def test_a_signature_is_on_record_before_the_agent_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens then, somebody knows of it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    host_key, signature = signed("ed25519")
    user_key = signed("ed25519")[0]
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/known_hosts").write_text(f"[good.test]:2222 ssh-ed25519 {base64.b64encode(host_key).decode()}\n")
    story, told = list[str](), list[NetworkRequest]()

    async def agent(client: anyio.abc.SocketStream) -> None:
        async with client:
            while True:
                message = await client.receive()
                story.append(f"asked {message[4]}")
                await client.send(text(b"\x0e" + text(b"a signature") if message[4] == 13 else b"\x05"))

    async def on_record() -> None:
        story.append("begun")
        await anyio.lowlevel.checkpoint()
        story.append(f"on record: {told[-1].reason}")

    listener = await anyio.create_unix_listener(tmp_path / "agent")
    ours, theirs = socket.socketpair()
    async with anyio.create_task_group() as group, listener:
        group.start_soon(listener.serve, agent)
        lent = await anyio.to_thread.run_sync(SshAgent, (ACCOUNT,), told.append, on_record)
        group.start_soon(lent.client, await anyio.abc.SocketStream.from_socket(theirs))
        async with await anyio.abc.SocketStream.from_socket(ours) as client:
            bind = b"\x1b" + text(b"session-bind@openssh.com", host_key, SESSION, signature) + b"\0"
            data = text(SESSION) + b"\x32" + text(b"git", b"ssh-connection", b"publickey") + b"\x01"
            data += text(b"ssh-ed25519", user_key)
            await client.send(text(bind, b"\x0d" + text(user_key, data) + bytes(4)))
            answers = b""
            while len(answers) < 5 + 4 + 1 + 4 + len("a signature"):
                answers += await client.receive()
        group.cancel_scope.cancel()
    assert answers == text(b"\x06", b"\x0e" + text(b"a signature"))
    record = f"on record: a signature by {fingerprint(user_key)} as git"
    assert story == ["asked 27", "begun", record, "asked 13"]
