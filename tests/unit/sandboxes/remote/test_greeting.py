"""Who may speak at all: both sides prove that they have the token, which never travels."""

import json
import struct

import anyio
import pytest

from stockade.core.errors import SandboxFailed, UsageError
from stockade_sandbox.backends.remote import greeting
from stockade_sandbox.backends.remote.client import Address, RemoteSandbox
from stockade_sandbox.backends.remote.greeting import MAX_WORD_BYTES, probe
from stockade_sandbox.policy import Policy
from tests.unit.sandboxes.remote.helpers import TOKEN, Way, scene, until

pytestmark = pytest.mark.anyio


def word(value: object) -> bytes:
    text = json.dumps(value).encode()
    return struct.pack("!I", len(text)) + text


async def answer_to(address: Address, *pieces: bytes) -> bytes:
    """All that a server says to somebody who says this, until it hangs up."""
    async with await anyio.connect_tcp(address.host, address.port) as stream:
        heard = b""
        try:
            for piece in pieces:
                await stream.send(piece)
            while True:
                heard += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return heard


async def test_a_probe_needs_no_token_and_makes_no_sandbox() -> None:
    async with scene() as here:
        assert await probe(here.address.host, here.address.port) == greeting.VERSION
        assert not here.boxes.made


async def test_a_probe_of_nothing_and_of_something_else_is_named() -> None:
    async with scene() as here:
        pass
    with pytest.raises(SandboxFailed, match="no sandbox server answers"):
        await probe(here.address.host, here.address.port)


async def test_a_wrong_token_is_refused_and_named() -> None:
    async with scene() as here:
        with pytest.raises(UsageError, match="does not take the token"):
            async with RemoteSandbox(Policy(), here.address, b"another token that is long enough"):
                pass
        assert not here.boxes.made


async def test_a_server_without_the_token_is_not_believed() -> None:
    async def impostor(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(word({"stockade": greeting.VERSION, "nonce": "00" * 32}))
            await stream.receive()
            await stream.send(word({"proof": "00" * 32}))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, impostor)
        port = int(listener.extra(anyio.abc.SocketAttribute.local_port))
        with pytest.raises(UsageError, match="does not have the token"):
            async with RemoteSandbox(Policy(), Address(host="127.0.0.1", port=port), TOKEN):
                pass
        group.cancel_scope.cancel()


async def test_neither_the_token_nor_the_same_proof_ever_travels() -> None:
    async with scene() as here:
        carried = []
        for _ in range(2):
            here.way.carried = b""
            async with RemoteSandbox(Policy(), here.near, TOKEN) as box:
                await box.run("ls")
            carried.append(here.way.carried)
    proofs = [{part for part in whole.split(b'"') if len(part) == 64} for whole in carried]
    assert all(len(found) == 4 for found in proofs)
    assert not proofs[0] & proofs[1]
    assert TOKEN not in b"".join(carried)


async def test_what_a_client_said_before_is_of_no_use_to_others() -> None:
    async with scene() as here:
        up: list[bytes] = []

        class Listening(Way):
            async def _carry(self, source: anyio.abc.ByteStream, target: anyio.abc.ByteStream, up_: bool) -> None:
                while True:
                    try:
                        data = await source.receive()
                        if up_:
                            up.append(data)
                        await target.send(data)
                    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                        break
                await anyio.aclose_forcefully(target)
                await anyio.aclose_forcefully(source)

        way = Listening(here.address)
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, way.serve)
            port = int(listener.extra(anyio.abc.SocketAttribute.local_port))
            async with RemoteSandbox(Policy(), Address(host="127.0.0.1", port=port), TOKEN) as box:
                await box.run("rm -rf everything")
            group.cancel_scope.cancel()
        with anyio.fail_after(20):
            heard = await answer_to(here.address, *up)
        assert b"refused" in heard
        assert len(here.boxes.made) == 1
        assert here.boxes.made[0].ran == ["rm -rf everything"]


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        struct.pack("!I", MAX_WORD_BYTES + 1),
        struct.pack("!I", 2**32 - 1) + b"x" * 1000,
        word([1]),
        word({"stockade": greeting.VERSION + 1, "nonce": "00" * 32}),
        word({"stockade": greeting.VERSION, "nonce": "short"}),
        word({"stockade": greeting.VERSION, "nonce": ["00"] * 64}),
        word({"stockade": greeting.VERSION}),
        struct.pack("!I", 300) + b"[" * 300,
        struct.pack("!I", 2) + b"\xff\xfe",
        word({"stockade": greeting.VERSION, "nonce": "ab" * 32}) + word({"proof": None}),
        word({"stockade": greeting.VERSION, "nonce": "ab" * 32}) + word({"proof": "x" * 64}),
    ],
)
async def test_garbage_ends_that_connection_and_nothing_else(said: bytes) -> None:
    async with scene() as here:
        with anyio.fail_after(20):
            await answer_to(here.address, said)
        async with RemoteSandbox(Policy(), here.address, TOKEN) as box:
            assert (await box.run("ls")).stdout == b"did ls"
        assert len(here.boxes.made) == 1


async def test_a_drip_does_not_keep_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "GREETING_S", 0.3)
    async with scene() as here, await anyio.connect_tcp(here.address.host, here.address.port) as stream:
        await stream.send(struct.pack("!I", MAX_WORD_BYTES))
        await until(lambda: _drips(stream, here.said))
        assert any("did not finish the greeting" in line for line in here.said)


async def _drips(stream: anyio.abc.ByteStream, said: list[str]) -> bool:
    """One byte more of a word that never ends; True when the server has had enough."""
    try:
        await stream.send(b"\0")
    except anyio.BrokenResourceError:
        return True
    return bool(said)


async def test_strangers_do_not_take_all_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade_sandbox.backends.remote.server.MAX_STRANGERS", 4)
    async with scene() as here:
        async with RemoteSandbox(Policy(), here.address, TOKEN) as box:
            streams = [await anyio.connect_tcp(here.address.host, here.address.port) for _ in range(8)]
            assert (await box.run("ls")).stdout == b"did ls"
            for stream in streams:
                await anyio.aclose_forcefully(stream)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:99999", "host:-1", "[::1]"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        Address.of(text)


def test_addresses_are_spelled_as_they_are_read() -> None:
    for text in ("192.0.2.7:1199", "[::1]:7", "host.example:65535"):
        assert str(Address.of(text)) == text
