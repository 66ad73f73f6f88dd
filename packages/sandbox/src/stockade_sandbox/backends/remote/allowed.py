"""What a serving machine lets the other side ask for: everything that is not allowed here is refused there."""

from collections.abc import Container
from dataclasses import dataclass, field, replace
from pathlib import Path

from stockade_sandbox.egress.rules import parse_rules
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import FolderMode, FolderRule, Network, Policy

_MAY: dict[FolderMode, tuple[FolderMode, ...]] = {
    "ro": ("ro",),
    "overlay": ("ro", "overlay"),
    "rw": ("ro", "overlay", "rw"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder of this machine: it and what is below may be given to a sandbox, at most in this mode."""

    path: str
    mode: FolderMode = "ro"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """`roots`: folders and copies. `network`: at most this. `images`: another root file system."""

    roots: tuple[Root, ...] = ()
    network: Network = field(default_factory=Network)
    images: bool = False


def granted(policy: Policy, allowed: Allowed, sent: Container[int] = ()) -> Policy:
    """The policy with the real paths of its folders, but for those that are `sent`. UsageError, in words for the other
    machine, when it may not be.
    """
    folders = tuple(
        _sent(rule) if number in sent else replace(rule, host=str(_real(rule.host, rule.mode, allowed)))
        for number, rule in enumerate(policy.folders)
    )
    copies = tuple(replace(rule, host=str(_real(rule.host, "ro", allowed))) for rule in policy.copies)
    if policy.rootfs is not None and not allowed.images:
        raise UsageError("the serving machine allows no other root file system", "there: --allow-images")
    if not _network_within(policy.network, allowed.network):
        raise UsageError(
            "the serving machine does not allow this network", "there: --net, as wide as it is wanted here"
        )
    given = Policy(
        folders=folders, copies=copies, files=policy.files, network=policy.network, limits=policy.limits,
        environment=policy.environment, rootfs=policy.rootfs, streams=policy.streams,
    )  # fmt: skip
    if replace(policy, folders=folders, copies=copies) != given:  # other paths of this machine
        raise UsageError("installed tools cannot be taken to another machine", "leave them out, or run over there")
    return given


def check_writable(policy: Policy, allowed: Allowed) -> None:
    """UsageError when what was written to an overlay folder may not be applied to it."""
    for rule in policy.folders:
        if rule.mode == "overlay":
            _real(rule.host, "rw", allowed)


def _sent(rule: FolderRule) -> FolderRule:
    if rule.mode != "overlay":
        raise UsageError("a folder that is sent is an overlay", "say so: overlay")
    return replace(rule, host="")


def _real(host: str, mode: FolderMode, allowed: Allowed) -> Path:
    """Links are followed before it is judged. What is not allowed is not looked at: its absence is no news."""
    refusal = UsageError(
        f"the serving machine does not allow {host} ({mode})",
        "folders are those of the serving machine; there: --allow PATH:" + mode,
    )
    try:
        path = Path(host).resolve()
    except (OSError, ValueError, RuntimeError):
        raise refusal from None
    for root in allowed.roots:
        if mode in _MAY[root.mode] and path.is_relative_to(Path(root.path).resolve()):
            return path
    raise refusal


def _network_within(wanted: Network, most: Network) -> bool:
    """What is not public has to be named over there too, whatever else is allowed."""
    if wanted.mode == "none" or (wanted.mode == most.mode == "open"):
        return True
    if most.mode == "open":
        return not any(rule.inner for rule in parse_rules(wanted.hosts))
    return wanted.mode == "allow" and most.mode == "allow" and set(wanted.hosts) <= set(most.hosts)
