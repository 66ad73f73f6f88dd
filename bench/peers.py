"""The peers, each installed into a venv of its own, never into the project's.

Versions are pinned. litellm 1.106.2 needs `mcp` for any answer with tools and does not say so; without it each
question is retried for minutes. openai is held to the version both were made for.
"""

import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from bench.client import Contender
from bench.contenders import BENCH

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stockade-dev" / "bench-peers"
_INSTALLING = threading.Lock()


@dataclass(frozen=True)
class Peer:
    """`requirements` are given to pip; `script` drives it; `environment` keeps it from the network and from home."""

    name: str
    requirements: tuple[str, ...]
    script: str
    environment: tuple[tuple[str, str], ...] = ()


PEERS = (
    Peer(
        "mini-swe-agent 2.4.6",
        ("mini-swe-agent==2.4.6", "litellm==1.106.2", "openai==2.54.0", "mcp==2.3.0"),
        "peer_mini.py",
        (("LITELLM_LOCAL_MODEL_COST_MAP", "True"), ("MSWEA_SILENT_STARTUP", "1")),
    ),
    Peer("smolagents 1.26.0", ("smolagents==1.26.0", "openai==2.54.0"), "peer_smolagents.py"),
)  # fmt: skip


def installed(peer: Peer, folder: Path = FOLDER) -> Contender:
    """The peer ready to be measured, installed first where it is not, by one thread. CalledProcessError when pip
    fails.
    """
    venv = folder / peer.name.replace(" ", "-")
    mark, wanted = venv / "installed", "\n".join(peer.requirements)
    with _INSTALLING:
        if not mark.exists() or mark.read_text() != wanted:
            print(f"installing {peer.name} into {venv}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
            if peer.requirements:
                subprocess.run([venv / "bin" / "pip", "install", "-qq", *peer.requirements], check=True)
            mark.write_text(wanted)
    return Contender(peer.name, [str(venv / "bin" / "python"), str(BENCH / peer.script)], dict(peer.environment))
