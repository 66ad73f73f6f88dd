"""Names and addresses: what a target may look like, and which ones are on the list. Pure.

An address is read in its plain spelling only. Whatever else the C library would take for one (127.1, 0x7f000001,
0177.1) ends in a number, as in the URL standard ("ends in a number checker"), and is refused for that.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import PROXY_PORT, Network

Address = IPv4Address | IPv6Address
Block = IPv4Network | IPv6Network

DEFAULT_PORTS = frozenset({80, 443})
MAX_PORTS = 28
LOCALHOST = "localhost"
"""With a port: a service of this machine."""
_MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9]\d{0,4}")
_BLOCK = re.compile(r"[0-9.]+(?:/\d+)?|[0-9a-fA-F.]*:[0-9a-fA-F:.]*(?:/\d+)?")
_PRIVATE_ENDS = frozenset({"internal", "local", "lan", "intranet", "corp", "home", "private", "arpa"})
"""Last labels that are nobody's in the public DNS (RFC 6762 appendix G, RFC 8375, ICANN's `internal`): what such a
name leads to is for the network to say that it belongs to. Below `arpa` only `home.arpa`.
"""
_INNER = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")))
_NO_BLOCK = tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/8", "2001::/32", "2002::/16",
                                   "ff00::/8")))  # fmt: skip
"""This machine, everybody at once, and IPv4 in another dress (mapped, NAT64, Teredo, 6to4)."""
_LINK = tuple(map(ip_network, ("169.254.0.0/16", "fe80::/10")))
"""Clouds answer here with the keys of the machine."""
_DEVIATING = frozenset("\u00df\u03c2\u1e9e\u200c\u200d")
"""The letters that IDNA 2003 and 2008 read as different names."""


class Refused(Exception):
    """A request that does not get out. `reason` is one printable line without secrets; `status` is HTTP's; `allow` the
    rule that was missing, where one would do.
    """

    def __init__(self, reason: str, status: int = 403, allow: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.allow = allow


@dataclass(frozen=True)
class Target:
    """A checked name in its one spelling (lower case, no trailing dot, ASCII), or an address in its own; and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def shown(text: str, limit: int = 80) -> str:
    """A piece of a request for a message: printable ASCII, one line, short."""
    plain = text.encode("ascii", "backslashreplace").decode()
    safe = "".join(char if " " <= char <= "~" else f"\\x{ord(char):02x}" for char in plain)
    return safe if len(safe) <= limit else safe[: limit - 3] + "..."


def host_name(text: str) -> str:
    """The one spelling of a host name. Refused for an address in any spelling, and for what is no name."""
    if "[" in text or ":" in text:
        raise Refused(f"{shown(text)} is an address, not a name")
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not text.isascii() or len(name) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise Refused(f"{shown(text) or 'nothing'} is not a host name", 400)
    if _NUMBER.fullmatch(labels[-1]):
        raise Refused(f"{shown(text)} is an address, not a name")
    return name


def address_of(text: str) -> Address | None:
    """The address that `text` is, in its plain spelling; None for anything else."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return None if isinstance(found, IPv6Address) and found.scope_id else found


def _host(text: str) -> str:
    """A name, or an IPv4 address."""
    found = address_of(text)
    return host_name(text) if found is None or found.version == 6 else str(found)


def parse_authority(text: str, default_port: int | None = None) -> Target:
    """`HOST:PORT`, or `HOST` when there is a default; IPv6 in brackets. Refused for user names, odd characters and
    spellings, and ports that are none.
    """
    if not all("!" <= char <= "~" for char in text):
        raise Refused(f"{shown(text)} has characters that no host name has", 400)
    if "@" in text:
        raise Refused(f"{shown(text)} has a user name before the host")
    if not text.startswith("[") and text.count(":") > 1:
        raise Refused(f"{shown(text)} is an address without its brackets, or no target at all", 400)
    if text.startswith("["):
        inner, bracket, rest = text[1:].partition("]")
        found = address_of(inner)
        if not bracket or not isinstance(found, IPv6Address) or rest[:1] not in ("", ":"):
            raise Refused(f"{shown(text)} is an address that cannot be read", 400)
        host, colon, port = str(found), rest[:1], rest[1:]
    else:
        name, colon, port = text.partition(":")
        host = _host(name)
    if not colon and default_port is not None:
        return Target(host, default_port)
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise Refused(f"{shown(text)} does not end in a port", 400)
    return Target(host, int(port))


@dataclass(frozen=True)
class Rule:
    """`name` itself, or with `below` every name under it but not itself; or all of `block`; on `ports`."""

    name: str
    below: bool
    ports: frozenset[int]
    block: Block | None = None

    def names(self, host: str) -> bool:
        if self.block is not None:
            return (address := address_of(host)) is not None and address in self.block
        return host.endswith("." + self.name) if self.below else host == self.name

    @property
    def inner(self) -> bool:
        """Whether it may lead to what is not public."""
        return self.block is not None or self.name == LOCALHOST or _is_private(self.name)


def _is_private(name: str) -> bool:
    """Whether the public DNS cannot have it."""
    end = name.rpartition(".")[2]
    return end == name or (end in _PRIVATE_ENDS and (end != "arpa" or f".{name}".endswith(".home.arpa")))


def _ascii_name(text: str) -> str:
    """A name as a person types it, in its ASCII form. ValueError when that is not certain."""
    if text.isascii():
        return text
    if _DEVIATING & set(text):
        raise ValueError("it is read in two ways; write its xn-- form")
    return text.encode("idna").decode("ascii")


def _parse_block(text: str) -> Rule | None:
    """`ADDRESS`, `CIDR`, with `:PORT` or without, IPv6 in brackets then. None for what is meant for a name."""
    if text.startswith("["):
        inner, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in inner:
            return None
    elif text.count(":") > 1:
        inner, rest = text, ""
    else:
        inner, colon, port = text.partition(":")
        rest = colon + port
    if not _BLOCK.fullmatch(inner):
        return None
    try:
        block = ip_network(inner)
    except ValueError as error:
        raise UsageError(f"--net: {error}", "write an address, or a block like 10.0.0.0/8") from None
    if any(block.overlaps(other) for other in _NO_BLOCK if other.version == block.version):
        raise UsageError(f"--net: {block} cannot be named", "a service of this machine is localhost:PORT")
    linked = [link for link in _LINK if link.version == block.version and block.overlaps(link)]
    if any(block.prefixlen < link.prefixlen for link in linked):
        raise UsageError(f"--net: {block} holds link-local addresses", f"name them alone, or less than {block}")
    return Rule(str(block), False, _ports(text, rest), block)


def _ports(text: str, rest: str) -> frozenset[int]:
    if not rest:
        return DEFAULT_PORTS
    if not _PORT.fullmatch(rest[1:]) or int(rest[1:]) > 65535 or rest[0] != ":":
        raise UsageError(f"--net: {shown(text)} does not end in a port", "write it like 10.0.0.0/8:5432")
    return frozenset({int(rest[1:])})


def parse_rule(text: str) -> Rule:
    """`HOST`, `*.SUFFIX`, `ADDRESS` or `CIDR`, with `:PORT` or without. UsageError saying what to write instead."""
    if block := _parse_block(text):
        return block
    if "/" in text:
        raise UsageError(f"--net: {shown(text)} is a URL, not a host", "write the host only, like pypi.org")
    if text == "*":
        raise UsageError("--net: * is no host", "write --net open for every public name")
    below, rest = text.startswith("*."), text.removeprefix("*.")
    try:
        target = parse_authority(_ascii_name(rest), 0)
    except Refused as refused:
        raise UsageError(f"--net: {refused.reason}", "write HOST, HOST:PORT, *.SUFFIX or a block") from None
    except ValueError as error:  # UnicodeError, from the codec, is one too
        raise UsageError(f"--net: {shown(text)} is not a host name: {error}", "write its xn-- form") from None
    if address_of(target.host):
        raise UsageError(f"--net: {shown(text)} is neither a name nor an address", "write the address alone")
    if target.host == LOCALHOST and not target.port:
        raise UsageError("--net: localhost needs a port", "name the service: localhost:5432")
    return Rule(target.host, below, frozenset({target.port}) if target.port else DEFAULT_PORTS)


@dataclass(frozen=True)
class Rules:
    """The list. `everything`: any name, on the default ports."""

    rules: tuple[Rule, ...] = ()
    everything: bool = False

    @classmethod
    def of(cls, network: Network) -> Self:
        """UsageError for a rule that is none; mode `none` gives rules that nothing meets."""
        if network.mode == "allow" and not network.hosts:
            raise UsageError("--net names no host", "write --net HOST,...")
        found = cls(parse_rules(network.hosts) if network.mode == "allow" else (), network.mode == "open")
        if len(found.ports) > MAX_PORTS:
            raise UsageError(f"--net names {len(found.ports)} ports", f"name at most {MAX_PORTS}")
        return found

    def judge(self, target: Target) -> None:
        """Refused when it is not on the list, naming what is missing there."""
        if self.everything and not address_of(target.host):
            if target.port not in DEFAULT_PORTS:
                raise Refused(f"port {target.port} is refused: --net open means ports 80 and 443")
            return
        naming = [rule for rule in self.rules if rule.names(target.host)]
        allow = str(target)
        if target.port in DEFAULT_PORTS and not naming and target.host != LOCALHOST:
            allow = allow.removesuffix(f":{target.port}")
        if not naming and address_of(target.host):
            raise Refused(f"{target.host} is an address that --net does not name", allow=allow)
        if not naming:
            raise Refused(f"{target.host} is not on the --net allow list", allow=allow)
        if not self.allows(target.host, target.port):
            raise Refused(f"{target} is not on the --net allow list, only other ports of it are", allow=allow)

    @property
    def ports(self) -> tuple[int, ...]:
        """Of names, where the agent listens for them."""
        named = (rule.ports for rule in self.rules if rule.block is None)
        return tuple(sorted(DEFAULT_PORTS.union(*named) - {PROXY_PORT}))

    def allows(self, host: str, port: int) -> bool:
        return any(rule.names(host) and port in rule.ports for rule in self.rules)

    def may_name(self, host: str) -> bool:
        """Whether something of that name may be asked for, whatever its port."""
        return any(rule.names(host) for rule in self.rules) or (self.everything and not _is_private(host))

    def may_be_at(self, target: Target, address: Address) -> bool:
        """Whether a target that was allowed may have an `address` that is not public: one that is named itself on that
        port, one of the inner networks for a name that no public DNS can give, and this machine's for `localhost`.
        """
        host, port = target.host, target.port
        if host == LOCALHOST:
            return address.is_loopback and any(rule.names(LOCALHOST) for rule in self.rules)
        if any(rule.block is not None and address in rule.block and port in rule.ports for rule in self.rules):
            return True
        named = any(rule.names(host) for rule in self.rules)
        return named and _is_private(host) and any(address in block for block in _INNER)


def parse_rules(hosts: Iterable[str]) -> tuple[Rule, ...]:
    return tuple(parse_rule(host) for host in hosts)
