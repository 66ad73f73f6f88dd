"""The layers of a policy's folders for backends that do not mount in a namespace of their own."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from stockade.core.changes import FolderLayer
from stockade.core.policy import Policy
from stockade.sandboxes.facts import fresh_sandbox_uid
from stockade.sandboxes.folders import prepare_layer
from stockade.sandboxes.trials import overlay_check

Progress = Callable[[str, int, int], None]


def container_layers(policy: Policy, base: Path, on_progress: Progress | None = None) -> tuple[FolderLayer, ...]:
    """For Docker, Podman and gVisor: overlays where root can mount them on the host, else copies."""
    if fresh_sandbox_uid() is None:
        return copied_layers(policy, base, on_progress)
    return _layers(policy, base, fresh_sandbox_uid(), overlay_check(base), on_progress)


def copied_layers(policy: Policy, base: Path, on_progress: Progress | None = None) -> tuple[FolderLayer, ...]:
    """Copies, owned by whoever runs us."""
    return _layers(policy, base, None, lambda _: "nothing is mounted on the host without root", on_progress)


def _layers(
    policy: Policy, base: Path, uid: int | None, check: Callable[[Path], str | None], on_progress: Progress | None
) -> tuple[FolderLayer, ...]:
    layers = []
    for rule in policy.folders:
        progress = partial(on_progress, f"copying {rule.host}") if on_progress else None
        layers.append(prepare_layer(rule, base, sandbox_uid=uid, can_overlay=check, progress=progress))
    return tuple(layers)
