"""Who takes part: each arm does one task in one folder and says how that ended.

Ours is the command a person types, sandboxed, with its defaults. Peers run without a sandbox of their own, so they get
one here: a file system that only their folder can be written in, no capabilities, own processes; the loopback server is
all they need of the network.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.ability.outcome import Ended, Tokens
from bench.ability.proxy import KEY, Proxy
from bench.client import ROOT, source_path
from bench.contenders import PYTHON
from bench.peers import FOLDER, PEERS, Peer, installed

TIMEOUT_S = 3600
STOCKADE = (PYTHON, "-m", "stockade.cli")
"""Of this checkout, whichever is installed."""
_PEER_FOLDER = SANDBOX_HOME = "/workspace"
"""Where every arm finds the folder, and its HOME (agentbench.HOME)."""
MICROBOTS = Peer("microbots 0.0.21", ("microbots==0.0.21",), "ability/peer_microbots.py", (("OPENAI_API_KEY", "none"),))
GRAMMARS = {"grammar": "block", "block": "block_alone", "said": "said_block"}
"""Arms whose answers a grammar holds: by the name of its file here, .gbnf."""
HERE = Path(__file__).parent
LOOKED = f"""[[hooks]]
name = "looked"
on = "before_finish"
command = {json.dumps([PYTHON, str(HERE / "looked_hook.py")])}
"""
BARE = Peer("a bare loop", (), "ability/bare_loop.py")


@dataclass(frozen=True)
class Did:
    """How a run ended, what it cost, and everything that was said in it."""

    ended: Ended
    turns: int
    malformed: int
    tokens: Tokens
    answer: str
    detail: str
    transcript: Sequence[dict[str, Any]]


class Arm(Protocol):
    @property
    def name(self) -> str: ...

    def do(self, words: str, folder: Path, run: str, max_turns: int) -> Did:
        """Blocking. Never raises for what the arm does wrong: that is how it ended."""
        ...


@dataclass(frozen=True)
class Stockade:
    """`stockade run --apply`, and then what it held back: changes in .git, and all of them where the run was stopped.

    What counts is what the person has in the folder who looks at that and agrees.
    """

    server: str
    name: str = "stockade"
    flags: tuple[str, ...] = ()
    checkout: Path = ROOT
    model: str = "openai/qwen"
    config: str = ""
    """Its config.toml."""

    def do(self, words: str, folder: Path, run: str, max_turns: int) -> Did:
        with tempfile.TemporaryDirectory(prefix="stockade-ability-") as home:
            environment = {
                "PATH": os.environ["PATH"], "PYTHONPATH": source_path(self.checkout), "LANG": "C.UTF-8", "HOME": home,
                "XDG_STATE_HOME": f"{home}/state",
                "OPENAI_BASE_URL": self.server, "OPENAI_API_KEY": KEY,
                "LLAMA_SERVER_URL": self.server.removesuffix("/v1"), "LLAMA_API_KEY": KEY,
            }  # fmt: skip
            if self.config:
                place = Path(home, ".config/stockade/config.toml")
                place.parent.mkdir(parents=True)
                place.write_text(self.config)
            stockade = STOCKADE if self.checkout == ROOT else (str(self.checkout / ".venv/bin/python"), *STOCKADE[1:])
            argv = [
                *stockade, "run", words, "--folder", str(folder), "--model", self.model, "--json", "--apply",
                "--no-input", "--max-turns", str(max_turns), "--timeout", str(TIMEOUT_S), "--seed", "1",
                *(("--env", f"HOME={SANDBOX_HOME}") if SANDBOX_HOME in words else ()), *self.flags,
            ]  # fmt: skip
            done = _run(argv, environment)
            events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            if not events or events[-1]["type"] != "result":
                return Did("error", 0, 0, Tokens(), "", done.stderr[-400:], events)
            result = events[-1]
            if result["changes"]:
                _run([*stockade, "runs", "apply", result["run"], "--flagged"], environment)
        usage = result["usage"]
        return Did(
            ended=_ended(result),
            turns=result["turns"],
            malformed=sum(event["type"] == "answer_unreadable" for event in events),
            tokens=Tokens(usage["prompt_tokens"], usage["cached_tokens"], usage["completion_tokens"]),
            answer=result["answer"] or "",
            detail=f"{result['status']}: {result['reason']}",
            transcript=events,
        )


@dataclass(frozen=True)
class StockadeApi:
    """The same through the Python API: what is written is applied, flagged changes too."""

    server: str
    name: str = "stockade-api"

    def do(self, words: str, folder: Path, run: str, max_turns: int) -> Did:
        with tempfile.TemporaryDirectory(prefix="stockade-ability-") as home:
            environment = {
                "PATH": os.environ["PATH"], "PYTHONPATH": source_path(ROOT), "LANG": "C.UTF-8", "HOME": home,
                "OPENAI_BASE_URL": self.server, "OPENAI_API_KEY": KEY,
            }  # fmt: skip
            script = str(HERE / "ours_api.py")
            done = _run([PYTHON, script, str(max_turns), words, str(folder)], environment)
        try:
            result = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, json.JSONDecodeError):
            return Did("error", 0, 0, Tokens(), "", done.stderr[-400:], [])
        usage = result["usage"]
        tokens = Tokens(usage["prompt_tokens"], usage["cached_tokens"], usage["completion_tokens"])
        detail = f"{result['status']}: {result['reason']}"
        return Did(
            _ended(result), result["turns"], result["malformed"], tokens, result["answer"] or "", detail, result["log"]
        )


def _ended(result: dict[str, Any]) -> Ended:
    if result["status"] == "done":
        return "done"
    reasons: dict[str, Ended] = {"turns": "turns", "loop": "loop", "unreadable": "malformed", "time": "time"}
    return reasons.get(result["reason"], "error")


@dataclass(frozen=True)
class PeerArm:
    """A peer's own script in its own venv. Its last line on stdout is `{"ended", "malformed", "answer", "detail"}`."""

    peer: Peer
    server: Proxy
    name: str
    words: tuple[str, ...] = ()

    def do(self, words: str, folder: Path, run: str, max_turns: int) -> Did:
        contender = installed(self.peer)
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": SANDBOX_HOME,
            "XDG_CONFIG_HOME": "/tmp/config", "XDG_CACHE_HOME": "/tmp/cache", "XDG_DATA_HOME": "/tmp/data",
            "OPENAI_BASE_URL": self.server.address(run), "OPENAI_API_KEY": "none", **contender.environment,
        }  # fmt: skip
        argv = [*sealed(folder, contender.argv), str(max_turns), words, *self.words]
        done = _run(argv, environment)
        exchanges = self.server.runs.pop(run, None)
        log = exchanges.log if exchanges else []
        try:
            said = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, json.JSONDecodeError):
            said = {"ended": "time" if done.returncode < 0 else "error", "malformed": 0, "answer": "",
                    "detail": done.stderr[-400:]}  # fmt: skip
        return Did(
            ended=said["ended"],
            turns=len(log),
            malformed=said["malformed"],
            tokens=exchanges.tokens if exchanges else Tokens(),
            answer=str(said["answer"]),
            detail=said["detail"],
            transcript=log,
        )


def sealed(folder: Path, argv: Sequence[str]) -> list[str]:
    """A command line that runs `argv` in `folder` and can change nothing else. The peers' folder may be empty yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    python = Path(os.path.realpath(argv[0])).parents[1]
    kept = [str(FOLDER), str(python), str(ROOT / "bench")]
    skipped = {Path("/dev"), Path("/proc"), Path(_PEER_FOLDER)}
    return [
        "bwrap", *(word for path in sorted(set(Path("/").iterdir()) - skipped) for word in _readable(path)),
        "--dev", "/dev", "--proc", "/proc",
        *(word for place in ("/tmp", "/run", "/root", "/mnt") for word in ("--tmpfs", place)),
        *(word for place in kept for word in ("--ro-bind", place, place)),
        "--bind", str(folder), _PEER_FOLDER, "--chdir", _PEER_FOLDER,
        "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL", "--die-with-parent", "--new-session",
        "--", *argv,
    ]  # fmt: skip


def _readable(path: Path) -> tuple[str, str, str]:
    """bwrap's words for an entry of /: bound one by one, for in a read-only / no folder can be made for the task."""
    return ("--symlink", os.readlink(path), str(path)) if path.is_symlink() else ("--ro-bind", str(path), str(path))


def _run(argv: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Ended, with all it started, after its time; its status is then negative."""
    try:
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, check=False, errors="replace",
            stdin=subprocess.DEVNULL, timeout=TIMEOUT_S + 60,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(argv, -9, "", f"took longer than {error.timeout:.0f} s")


def arms(server: str, proxy: Proxy, base: Path | None = None) -> dict[str, Arm]:
    """Every arm by its name. `server` ends in /v1. `base`: another checkout, with its own .venv, to compare with."""
    mini, smolagents = PEERS
    ability = {"mini": ("ability/peer_mini.py", mini), "smol": ("ability/peer_smolagents.py", smolagents)}
    mini, smolagents = (
        Peer(peer.name, peer.requirements, script, peer.environment) for script, peer in ability.values()
    )
    fenced, without, helped = ("--answers", "fenced"), ("-o", "small_models=false"), ("-o", "small_models=true")
    found: list[Arm] = [
        Stockade(server),
        StockadeApi(server),
        Stockade(server, "stockade-fenced", fenced),
        Stockade(server, "stockade-json", ("--answers", "json")),
        Stockade(server, "fenced-none", (*fenced, *without)),
        Stockade(server, "none", without),
        Stockade(server, "on", helped),
        Stockade(server, "shown", (*helped, "--bot", str(HERE / "shown.toml"))),
        Stockade(server, "looked", helped, config=LOOKED),
        PeerArm(mini, proxy, "mini-swe-agent text", ("text",)),
        PeerArm(mini, proxy, "mini-swe-agent tools", ("tools",)),
        PeerArm(smolagents, proxy, "smolagents code", ("code",)),
        PeerArm(smolagents, proxy, "smolagents tools", ("tools",)),
        PeerArm(MICROBOTS, proxy, "microbots"),
        PeerArm(BARE, proxy, "bare loop"),
    ]
    for name, file in GRAMMARS.items():
        held = (*fenced, "-o", f"grammar={HERE / file}.gbnf")
        found.append(Stockade(server, name, held, model="llama-server/qwen"))
        found.append(Stockade(server, f"{name}-none", (*held, *without), model="llama-server/qwen"))
    if base is not None:
        found += [
            Stockade(server, "base", checkout=base),
            Stockade(server, "base-no-advice", ("--no-advice",), base),
        ]
    return {arm.name: arm for arm in found}
