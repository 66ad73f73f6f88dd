"""A name to the addresses that may be connected to: public ones only, all of them, looked up once.

Python's `is_global` is not enough: it takes NAT64 (64:ff9b::/96), 6to4 (2002::/16) and multicast for global, and older
versions have older tables. So IPv6 has to lie in 2000::/3, and what is special in there is listed, like for IPv4, from
IANA's special-purpose registries (RFC 6890 and its updates).
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network

import anyio

from stockade_sandbox.egress.rules import LOCALHOST, Address, Refused, Rules, Target

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Name and port to addresses in text. OSError when there is no such name."""
AllowPrivate = Callable[[str, Address], bool]
"""Whether this name may have this address although it is not public: for tests, which have only loopback."""

RESOLVE_S = 15.0

_SPECIAL_V4 = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # Azure's platform service, reachable from its machines only
    )
)  # fmt: skip
_GLOBAL_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(
    ip_network(text)
    for text in (
        "2001::/23",  # Teredo, ORCHID, benchmarks
        "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "3ffe::/16",
    )
)  # fmt: skip


def is_public(address: Address) -> bool:
    """Whether anybody on the Internet means the same machine by it."""
    if isinstance(address, IPv6Address):
        if address.scope_id or address not in _GLOBAL_V6 or any(address in special for special in _SPECIAL_V6):
            return False
    elif any(address in special for special in _SPECIAL_V4):
        return False
    return address.is_global and not address.is_multicast


def is_own(address: Address) -> bool:
    """Whether it is this machine's: its services may trust who connects from here. Nothing is sent to find out."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False  # no way there: connecting fails as well


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """The host's own, /etc/hosts included."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def never_private(_host: str, _address: Address) -> bool:
    return False


def as_named(rules: Rules, target: Target, address: Address) -> bool:
    """What the list names of private addresses; of this machine's only by `localhost`."""
    return rules.may_be_at(target, address) and (target.host == LOCALHOST or not is_own(address))


async def public_addresses(target: Target, resolver: Resolver, allow_private: AllowPrivate) -> tuple[Address, ...]:
    """Where `target` is. Refused when the name is unknown, or when any one of its addresses is not public."""
    try:
        with anyio.fail_after(RESOLVE_S):
            texts = await resolver(target.host, target.port)
        addresses = tuple(dict.fromkeys(ip_address(text) for text in texts))
    except TimeoutError:
        raise Refused(f"{target.host} was not resolved within {RESOLVE_S:g} s", 504) from None
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise Refused(f"{target.host} cannot be resolved: {reason or 'not a name'}", 502) from None
    if not addresses:
        raise Refused(f"{target.host} has no address", 502)
    for address in addresses:
        if allow_private(target.host, address):
            continue
        if not is_public(address):
            too = Target(str(address), target.port)
            raise Refused(f"{target.host} has the address {address}, which is not public: --net has to name {too} too")
        if is_own(address):
            raise Refused(f"{target.host} has the address {address}, which is this machine's own")
    return addresses
