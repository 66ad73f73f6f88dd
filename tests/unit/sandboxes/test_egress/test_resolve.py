"""Which addresses may be connected to."""

from collections.abc import Sequence
from ipaddress import ip_address

import anyio
import pytest

from stockade_sandbox.egress import resolve
from stockade_sandbox.egress.resolve import as_named, is_own, is_public, never_private, public_addresses
from stockade_sandbox.egress.rules import Refused, Rules, Target
from stockade_sandbox.policy import Network

pytestmark = pytest.mark.anyio

NOT_PUBLIC = (
    "0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.100.100.200",
    "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.80", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::808:808",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:0:4136:e378::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1",
    "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo",
    "fec0::1", "ff02::1", "4000::1",
)  # fmt: skip


@pytest.mark.parametrize("text", NOT_PUBLIC)
async def test_what_is_not_public_is_refused(text: str) -> None:
    assert not is_public(ip_address(text))
    with pytest.raises(Refused, match="not public"):
        await lookup("8.8.8.8", text)


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "151.101.0.223", "2606:4700::1111", "2a04:4e42::223"])
def test_what_is_public(text: str) -> None:
    assert is_public(ip_address(text))


def test_this_machines_own_address_is_known() -> None:
    assert is_own(ip_address("127.0.0.1"))
    assert not is_own(ip_address("8.8.8.8"))


async def test_a_public_address_of_this_machines_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "is_own", lambda address: str(address) == "8.8.8.8")
    with pytest.raises(Refused, match="this machine's own"):
        await lookup("1.1.1.1", "8.8.8.8")
    assert await lookup("1.1.1.1") == ["1.1.1.1"]


def test_a_block_that_is_named_holds_no_address_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "is_own", lambda address: str(address) == "10.0.0.1")
    named = Rules.of(Network(mode="allow", hosts=("10.0.0.0/8", "db.test", "localhost:80")))
    found = [as_named(named, Target("db.test", 80), ip_address(text)) for text in ("10.0.0.1", "10.0.0.2", "11.0.0.1")]
    assert found == [False, True, False]
    assert as_named(named, Target("localhost", 80), ip_address("127.0.0.1"))


async def lookup(*addresses: str) -> Sequence[str]:
    async def resolver(host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("a.org", 443)
        return addresses

    return [str(found) for found in await public_addresses(Target("a.org", 443), resolver, never_private)]


async def test_all_addresses_once_in_order() -> None:
    assert await lookup("8.8.8.8", "1.1.1.1", "8.8.8.8") == ["8.8.8.8", "1.1.1.1"]


async def test_one_bad_address_refuses_the_name() -> None:
    with pytest.raises(Refused, match=r"a\.org has the address 10\.0\.0\.1, which is not public"):
        await lookup("8.8.8.8", "10.0.0.1")


async def test_an_exception_is_for_one_name_and_address() -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    for host, allowed in (("good.test", True), ("other.test", False)):
        target = Target(host, 80)
        try:
            await public_addresses(target, resolver, lambda name, address: name == "good.test" and address.is_loopback)
        except Refused:
            assert not allowed
        else:
            assert allowed


@pytest.mark.parametrize(
    ("error", "status"), [(OSError(-2, "Name or service not known"), 502), (UnicodeError("no"), 502)]
)
async def test_names_that_cannot_be_resolved(error: Exception, status: int) -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        raise error

    with pytest.raises(Refused, match="cannot be resolved") as refused:
        await public_addresses(Target("a.org", 80), resolver, never_private)
    assert refused.value.status == status


async def test_no_address_at_all() -> None:
    with pytest.raises(Refused, match="no address"):
        await lookup()


async def test_a_resolver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "RESOLVE_S", 0.01)

    async def resolver(host: str, port: int) -> Sequence[str]:
        await anyio.sleep_forever()
        return []

    with pytest.raises(Refused, match="was not resolved within") as refused:
        await public_addresses(Target("a.org", 80), resolver, never_private)
    assert refused.value.status == 504


async def test_the_systems_resolver_knows_localhost() -> None:
    assert "127.0.0.1" in await resolve.system_resolver("localhost", 80)
