"""The user's own interpreters and tools in a run: what its folders need of them, as far as the user allowed it.

`--toolchain auto` is their word for this run; what they allowed for always stands beside the approvals, by its paths.
"""

import os
import time
from collections.abc import Mapping, Sequence
from os.path import expanduser, isdir
from pathlib import Path

from stockade.approval.remembered import Approval
from stockade.core.errors import UsageError
from stockade.core.settings import RunSettings
from stockade.runtime.hooks import approval_file
from stockade.runtime.sandboxes import AUTO, DEFAULT, backend_of
from stockade_sandbox.backends.rootfs import STANDARD_ENVIRONMENT
from stockade_sandbox.policy import Policy
from stockade_sandbox.toolchains import Toolchain, find, with_toolchains

EVERY_BOT = "every bot"
"""Of an approval to see a toolchain."""


def found_for(policy: Policy, environment: Mapping[str, str] = os.environ) -> tuple[Toolchain, ...]:
    """What its folders need, the first folder's first."""
    home = Path(environment.get("HOME") or expanduser("~"))
    found = [one for rule in policy.folders for one in find(Path(rule.host), environment, home)]
    return tuple({one.key: one for one in reversed(found)}.values())[::-1]


def undecided(spec: RunSettings, policy: Policy) -> tuple[Toolchain, ...]:
    """What the user would have to allow: nothing where they gave --toolchain, or the sandbox shows none."""
    if spec.toolchain is not None or not _shown(spec):
        return ()
    seen = _allowed(policy)
    return tuple(one for one in found_for(policy) if not seen.issuperset(one.mounts))


def allow(policy: Policy, chosen: Sequence[Toolchain]) -> None:
    """For always, for every bot, in these folders."""
    mounts = tuple(dict.fromkeys(path for one in chosen for path in one.mounts))
    text = f"see {', '.join(one.name for one in chosen)}, read-only"
    approval_file().add([Approval(place=_place(policy), bot=EVERY_BOT, words=mounts, text=text, at=time.time())])


def own_toolchain(spec: RunSettings, policy: Policy) -> Policy:
    """The policy with what is seen of it. UsageError for --toolchain where it cannot be had."""
    if spec.toolchain == "none" or (spec.toolchain is None and not _shown(spec)):
        return policy
    if not _shown(spec):
        what = f"--toolchain {spec.toolchain}: this sandbox does not show programs of this machine"
        raise UsageError(what, "use --sandbox bubblewrap, without --image")
    if spec.toolchain in (None, "auto"):
        seen = None if spec.toolchain else _allowed(policy)
        chosen = [one for one in found_for(policy) if seen is None or seen.issuperset(one.mounts)]
    else:
        chosen = [_given(spec.toolchain or "")]
    return with_toolchains(policy, chosen, STANDARD_ENVIRONMENT["PATH"], STANDARD_ENVIRONMENT["HOME"])


def _given(text: str) -> Toolchain:
    path = Path(expanduser(text)).absolute()
    if not isdir(path):
        raise UsageError(f"--toolchain {text}: there is no such folder", "give auto, none, or a folder with programs")
    if Path(expanduser("~")).is_relative_to(path):
        raise UsageError(f"--toolchain {text}: your home is in it", "give the folder of the tools alone")
    programs = path / "bin" if (path / "bin").is_dir() else path
    return Toolchain(path.name, "you named it", (str(path),), (str(programs),))


def _shown(spec: RunSettings) -> bool:
    return not spec.image and backend_of(DEFAULT if spec.sandbox == AUTO else spec.sandbox).shows_programs


def _place(policy: Policy) -> tuple[str, ...]:
    return tuple(os.path.realpath(rule.host) for rule in policy.folders)


def _allowed(policy: Policy) -> set[str | None]:
    place = _place(policy)
    every = approval_file().read().approvals
    return {word for one in every if (one.bot, one.place) == (EVERY_BOT, place) for word in one.words}
