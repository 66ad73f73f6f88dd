"""What a bot is told of what it was given: the network, its folders, whom it can ask. Nothing of what is as always.

A prompt holds marks for it: `{workdir}`, `{network}` ("There is {network}.") and `{nobody}` ("and {nobody}.").
"""

from collections.abc import Sequence

from stockade_sandbox.policy import FolderRule, Policy

_WORKDIR, _NETWORK, _NOBODY = "{workdir}", "{network}", "{nobody}"
_SHOWN_HOSTS = 20


def filled(prompt: str, policy: Policy, actions: Sequence[str]) -> str:
    """The prompt with its marks replaced; other braces stay as they are."""
    nobody = "nobody to ask but the user (ask_user)" if "ask_user" in actions else "nobody to ask"
    text = prompt.replace(_WORKDIR, policy.workdir)
    return text.replace(_NETWORK, _network(policy) or "no network").replace(_NOBODY, nobody)


def given(prompt: str, policy: Policy, *, knows_readonly: bool) -> str:
    """Sentences on what the prompt does not say itself; "" when there is nothing to say.

    `knows_readonly`: it says that the first folder can only be read.
    """
    lines = []
    first, *others = policy.folders or (None,)
    if first is not None and first.mode == "ro" and not knows_readonly:
        lines.append(f"{first.inside} can only be read.")
    if others:
        lines.append(f"More folders of the user: {', '.join(map(_named, others))}.")
    if copies := [copy.inside for copy in policy.copies if copy.inside not in prompt]:
        lines.append(f"Copied in for you: {', '.join(copies)}.")
    if _NETWORK not in prompt and (network := _network(policy)):
        lines.append(f"There is {network}.")
    return " ".join(lines)


def _named(rule: FolderRule) -> str:
    return f"{rule.inside} (can only be read)" if rule.mode == "ro" else rule.inside


def _network(policy: Policy) -> str:
    if policy.network.mode == "none":
        return ""
    hosts = policy.network.hosts
    shown = ", ".join(hosts[:_SHOWN_HOSTS]) + (", ..." if len(hosts) > _SHOWN_HOSTS else "")
    return "a network by HTTP and TLS" + (f" (only {shown})" if policy.network.mode == "allow" else "")
