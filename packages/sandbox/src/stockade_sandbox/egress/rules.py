"""Names: what a target may look like, and which ones are on the list. Pure.

Only names are ever asked for, never addresses: whatever the C library would take for one (127.1, 0x7f000001, 0177.1)
ends in a number, as in the URL standard (url.spec.whatwg.org, "ends in a number checker"), and is refused for that.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import Network

DEFAULT_PORTS = frozenset({80, 443})
_MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9]\d{0,4}")
_DEVIATING = frozenset("\u00df\u03c2\u1e9e\u200c\u200d")
"""The letters that IDNA 2003 and 2008 read as different names."""


class Refused(Exception):
    """A request that does not get out. `reason` is one printable line without secrets; `status` is HTTP's."""

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


@dataclass(frozen=True)
class Target:
    """A checked name in its one spelling (lower case, no trailing dot, ASCII), and a port."""

    host: str
    port: int


def shown(text: str, limit: int = 80) -> str:
    """A piece of a request for a message: printable ASCII, one line, short."""
    plain = text.encode("ascii", "backslashreplace").decode()
    safe = "".join(char if " " <= char <= "~" else f"\\x{ord(char):02x}" for char in plain)
    return safe if len(safe) <= limit else safe[: limit - 3] + "..."


def host_name(text: str) -> str:
    """The one spelling of a host name. Refused for an address in any spelling, and for what is no name."""
    if "[" in text or ":" in text:
        raise Refused(f"{shown(text)} is an address, and only names can be asked for")
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not text.isascii() or len(name) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise Refused(f"{shown(text) or 'nothing'} is not a host name", 400)
    if _NUMBER.fullmatch(labels[-1]):
        raise Refused(f"{shown(text)} is an address, and only names can be asked for")
    return name


def parse_authority(text: str, default_port: int | None = None) -> Target:
    """`HOST:PORT`, or `HOST` when there is a default. Refused for user names, addresses, odd characters and ports."""
    if not all("!" <= char <= "~" for char in text):
        raise Refused(f"{shown(text)} has characters that no host name has", 400)
    if "@" in text:
        raise Refused(f"{shown(text)} has a user name before the host")
    if text.startswith("[") or text.count(":") > 1:
        raise Refused(f"{shown(text)} is an address, and only names can be asked for")
    name, colon, port = text.partition(":")
    if not colon and default_port is not None:
        return Target(host_name(name), default_port)
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise Refused(f"{shown(text)} does not end in a port", 400)
    return Target(host_name(name), int(port))


@dataclass(frozen=True)
class Rule:
    """`name` itself, or with `below` every name under it but not itself; on `ports`."""

    name: str
    below: bool
    ports: frozenset[int]

    def names(self, host: str) -> bool:
        return host.endswith("." + self.name) if self.below else host == self.name


def _ascii_name(text: str) -> str:
    """A name as a person types it, in its ASCII form. ValueError when that is not certain."""
    if text.isascii():
        return text
    if _DEVIATING & set(text):
        raise ValueError("it is read in two ways; write its xn-- form")
    return text.encode("idna").decode("ascii")


def parse_rule(text: str) -> Rule:
    """`HOST`, `HOST:PORT`, `*.SUFFIX` or `*.SUFFIX:PORT`. UsageError saying what to write instead."""
    if "/" in text:
        raise UsageError(f"--net: {shown(text)} is a URL, not a host", "write the host only, like pypi.org")
    if text == "*":
        raise UsageError("--net: * is no host", "write --net open for every public name")
    below, rest = text.startswith("*."), text.removeprefix("*.")
    try:
        target = parse_authority(_ascii_name(rest), 0)
    except Refused as refused:
        raise UsageError(f"--net: {refused.reason}", "write HOST, HOST:PORT or *.SUFFIX") from None
    except ValueError as error:  # UnicodeError, from the codec, is one too
        raise UsageError(f"--net: {shown(text)} is not a host name: {error}", "write its xn-- form") from None
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
            raise UsageError("--net allow= names no host", "write --net allow=HOST,...")
        return cls(parse_rules(network.hosts) if network.mode == "allow" else (), network.mode == "open")

    def judge(self, target: Target) -> None:
        """Refused when it is not on the list, naming what is missing there."""
        if self.everything:
            if target.port not in DEFAULT_PORTS:
                raise Refused(f"port {target.port} is refused: --net open means ports 80 and 443")
            return
        naming = [rule for rule in self.rules if rule.names(target.host)]
        if not naming:
            raise Refused(f"{target.host} is not on the --net allow list")
        if not any(target.port in rule.ports for rule in naming):
            raise Refused(f"{target.host}:{target.port} is not on the --net allow list, only other ports of it are")


def parse_rules(hosts: Iterable[str]) -> tuple[Rule, ...]:
    return tuple(parse_rule(host) for host in hosts)
