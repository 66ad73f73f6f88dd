"""The layers of a policy's folders for backends that do not mount in a namespace of their own."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from stockade_sandbox.backends.feature_probe import overlay_check
from stockade_sandbox.backends.host_info import fresh_sandbox_uid
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed, UsageError
from stockade_sandbox.policy import Policy
from stockade_sandbox.registry import load
from stockade_sandbox.results import FolderLayer
from stockade_sandbox.stoppable import Progress, quietly


def container_layers(policy: Policy, base: Path, on_progress: Progress | None = None) -> tuple[FolderLayer, ...]:
    """For Docker, Podman and gVisor: overlays where root can mount them on the host, else copies.

    PolicyNotEnforceable for installed tools where they cannot be had.
    """
    without_root(policy)
    if policy.links:
        raise UsageError("this sandbox cannot show a folder at its own path", "use --sandbox bubblewrap")
    if fresh_sandbox_uid() is None:
        return copied_layers(policy, base, on_progress)
    not_with_an_image(policy)
    return make_layers(policy, base, fresh_sandbox_uid(), overlay_check(base), on_progress)


def copied_layers(policy: Policy, base: Path, on_progress: Progress | None = None) -> tuple[FolderLayer, ...]:
    """Copies, owned by whoever runs us."""
    without_root(policy)
    _without_tools(policy)
    return make_layers(policy, base, None, lambda _: "nothing is mounted on the host without root", on_progress)


def unpack_image(reference: str | None, on_progress: Progress | None) -> None:
    """Before anything else is done: it takes long, and may be none. See oci.unpacked."""
    load("backends.oci:unpacked")(reference, on_progress or quietly)


def not_with_an_image(policy: Policy) -> None:
    """PolicyNotEnforceable for tools that were installed on another system than the one that is asked for."""
    if policy.system and policy.rootfs:
        raise PolicyNotEnforceable("tools", "tools are installed on this machine's own system", "leave out --image")


def no_tools_here() -> PolicyNotEnforceable:
    """Where nothing can be mounted on the host."""
    return PolicyNotEnforceable(
        "tools",
        "installed tools are layers over this machine's /usr, which cannot be mounted for this sandbox here",
        "use --sandbox bubblewrap; as root also docker, podman or gvisor",
        ("bubblewrap",),
    )


def without_root(policy: Policy) -> None:
    if policy.root:
        what = "no program can be root in this kind of sandbox"
        raise PolicyNotEnforceable("user", what, "use --sandbox bubblewrap", ("bubblewrap",))


def _without_tools(policy: Policy) -> None:
    if policy.system:
        raise no_tools_here()


def make_layers(
    policy: Policy, base: Path, uid: int | None, check: Callable[[Path], str | None], on_progress: Progress | None
) -> tuple[FolderLayer, ...]:
    """All of them or, where one cannot be made or `on_progress` raises, none. See prepare_layer."""
    layers: list[FolderLayer] = []
    if any(rule.mode == "overlay" for rule in policy.folders):
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "what a bot writes is kept there: set XDG_STATE_HOME to a folder that can be written"
            raise SandboxFailed(f"the folder {base} cannot be made: {error.strerror}", hint) from None
    try:
        for rule in policy.folders:
            progress = partial(on_progress, f"copying {rule.host}") if on_progress else None
            made = load("overlay.prepare:prepare_layer")
            layers.append(made(rule, base, sandbox_uid=uid, can_overlay=check, progress=progress))
    except BaseException:
        for layer in layers:
            load("overlay.discard:discard_layer")(layer)
        raise
    lent = [FolderLayer(host=one.host, inside=one.inside, mode="ro", strategy="direct") for one in policy.lent]
    return (*layers, *lent)
