"""Every backend that has a network, by name, with a proxy of the test's choice."""

from pathlib import Path

import pytest

from stockade.core.ports import Sandbox
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.backends.containers.container import ContainerSandbox
from stockade_sandbox.backends.containers.engines import EngineName
from stockade_sandbox.backends.containers.gvisor import GVisorSandbox
from stockade_sandbox.egress.inside import MakeServer
from stockade_sandbox.policy import Policy
from tests.support.engines import engine_environment, engine_runsc, need

BACKENDS = ("bubblewrap", "docker", "podman", "gvisor", "docker with runsc", "podman with runsc")


def ready(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine is the test's own."""
    if backend == "gvisor":
        need("runsc")
    elif backend != "bubblewrap":
        for name, value in engine_environment(backend.partition(" ")[0]).items():
            monkeypatch.setenv(name, value)


def sandbox_of(backend: str, policy: Policy, base: Path, egress: MakeServer) -> Sandbox:
    """Without folders."""
    if backend == "bubblewrap":
        return BubblewrapSandbox(policy, (), base, egress)
    if backend == "gvisor":
        return GVisorSandbox(policy, (), base, egress)
    engine: EngineName = "docker" if backend.startswith("docker") else "podman"
    return ContainerSandbox(policy, (), base, engine, engine_runsc(engine) if "runsc" in backend else None, egress)
