"""Attacks on promises 16, 19 and 20: the end of a run, a machine without namespaces, a cut-off run."""

import contextlib
import ctypes
import json
import os
import signal
import struct
import subprocess
import time

from tests.attack.blind import ends  # noqa: F401 its attacks come first
from tests.attack.blind.ground import PRELUDE, Ground, Sealed, alive, until
from tests.attack.blind.table import attack

DAEMON = """
def run_on(mark):
    for number in range(1, 65):
        attempt(signal.signal, number, signal.SIG_IGN)
    os.setsid()
    os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)', mark])
"""


@attack(
    16,
    "daemons that ignore every signal, in sessions of their own, stopped ones, at an ordinary end",
    "one is alive afterwards",
)
def daemons(g: Ground) -> list[str]:
    script = (
        DAEMON
        + """
for kind in range(6):
    if not os.fork():
        if not os.fork():
            for fd in range(0, 64):
                attempt(os.close, fd)
            run_on(sys.argv[1] + sys.argv[2])
        os._exit(0)
time.sleep(0.3)
print('end', flush=True)
"""
    )
    g.run(script, g.mark[:9], g.mark[9:])
    until(lambda: not alive(g.mark), 5 if g.sealed else 0.2)
    return [str(p) for p in alive(g.mark)]


def children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(c) for c in file.read().split()]
    return found + [d for c in found for d in children(c)]


def _leave(g: Ground, process: subprocess.Popen[bytes]) -> None:
    """Without a sandbox what runs on holds its streams for longer than anybody wants to wait."""
    if g.sealed:
        g.finish(process, 20)
    else:
        with process:
            process.kill()


@attack(
    16,
    "kill -9 of each part in turn, while all that is inside is stopped or in vfork",
    "something inside is alive afterwards",
)
def parts(g: Ground) -> list[str]:
    script = (
        DAEMON
        + """
mark = sys.argv[1] + sys.argv[2]
for kind in range(3):
    if not os.fork(): run_on(mark)
pid = os.fork()
if not pid: os.kill(os.getpid(), signal.SIGSTOP) or run_on(mark)
time.sleep(0.4)
open('ready', 'w').close()
os.execv(sys.executable, [sys.executable, '-c', 'import os, signal; os.kill(os.getpid(), signal.SIGSTOP)', mark])
"""
    )
    g.own()
    got = []
    part = 0
    while True:
        process = g.start(script, g.mark[:9], g.mark[9:])
        parts = [process.pid, *[c for c in children(process.pid) if c not in alive(g.mark)]]
        if part >= len(parts) or part > 6:
            os.killpg(process.pid, signal.SIGKILL)
            _leave(g, process)
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(parts[part], signal.SIGKILL)
        until(lambda: not alive(g.mark), 3 if g.sealed else 0.3)
        if process.poll() is None:  # that part was none that the others need: then the first of them as well
            process.kill()
            until(lambda: not alive(g.mark), 8 if g.sealed else 0.3)
        got += [f"part {part}: {len(alive(g.mark))} alive"] if alive(g.mark) else []
        for pid in alive(g.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        _leave(g, process)
        part += 1
    return got


@attack(16, "a chain that forks on faster than it can be killed, at a time-out", "the folder is written to afterwards")
def chain(g: Ground) -> list[str]:
    g.own()
    script = """
pid = os.fork()
if pid: time.sleep(30)
for i in range(3000):
    if os.fork(): os._exit(0)
    os.setsid()
    open('grows', 'a').write('x')
    if os.path.exists('stop'): os._exit(0)
    time.sleep(0.01)
"""
    if g.sealed:
        g.run(script, flags=["--timeout", "2"], mode="rw")
    else:
        process = g.popen(
            g.command(PRELUDE + script, [], [], "rw"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(2)
        process.kill()
        process.wait()
    size = (g.work / "grows").stat().st_size
    assert size
    until(lambda: (g.work / "grows").stat().st_size != size, 1)
    grown = (g.work / "grows").stat().st_size != size
    (g.work / "stop").touch()
    return ["it grew"] if grown else []


@attack(
    19,
    "bwrap and other helpers in a virtual environment that the user has activated",
    "a program from the folder runs on the host",
)
def fake_helpers(g: Ground) -> list[str]:
    marker = g.home / "ran"
    helpers = [
        "bwrap",
        "git",
        "unshare",
        "newuidmap",
        "runsc",
        "docker",
        "podman",
        "id",
        "uname",
        "getent",
        "ldconfig",
        "systemd-run",
        "fusermount3",
        "mount",
        "sh",
    ]
    fakes = "mkdir -p .venv/bin; for n in {}; do printf '#!/usr/bin/bash\\necho %s >> {}\\nexec /usr/bin/%s \"$@\"\\n' "
    fakes += "$n $n > .venv/bin/$n; chmod +x .venv/bin/$n; done"
    g.own()
    g.bot(fakes.format(" ".join(helpers), marker))
    g.apply()
    got = ["applied unflagged"] if g.sealed and (g.work / ".venv" / "bin" / "bwrap").exists() else []
    g.plain("sh", "-c", fakes.format(" ".join(helpers), marker))  # and by a folder given rw
    path = {"PATH": f"{g.work}/.venv/bin:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": f"{g.work}/.venv"}
    if g.sealed:
        g.run("", env=path, refused=True)
        g.finish(
            g.popen(
                g.bot_command(g.script(["true"]) if isinstance(g, Sealed) else "", "overlay", ["--discard"]), env=path
            )
        ) if isinstance(g, Sealed) else None
    else:
        g.finish(g.popen(["sh", "-c", "bwrap --version; git status; id"], env=path))
    return got + (sorted(set(marker.read_text().split())) if marker.exists() else [])


def no_namespaces() -> None:
    """A filter that says EPERM to unshare, clone, clone3, mount and setns with flags, as hardened machines do."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)
    rules = [(0x20, 0, 0, 0)]
    rules += [(0x15, 0, 1, 272), (0x06, 0, 0, 0x00050001), (0x15, 0, 1, 165), (0x06, 0, 0, 0x00050001)]
    rules += [(0x15, 0, 1, 435), (0x06, 0, 0, 0x00050000 | 38)]
    rules += [
        (0x15, 0, 3, 56),
        (0x20, 0, 0, 16),
        (0x45, 0, 1, 0x7E020000),
        (0x06, 0, 0, 0x00050001),
        (0x06, 0, 0, 0x7FFF0000),
    ]
    code = b"".join(struct.pack("HBBI", *r) for r in rules)
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(buffer)))
    if libc.prctl(22, 2, program, 0, 0):
        os._exit(99)


@attack(19, "a machine where no namespace and no mount can be made", "the command runs, or the status is not 4 or 125")
def refused(g: Ground) -> list[str]:
    answer = g.run("hit('ran')", first=no_namespaces, refused=True)
    got = answer.hits
    if isinstance(g, Sealed):
        got += [] if answer.status in (4, 125) else [f"exec: status {answer.status}"]
        run = g.finish(g.popen(g.bot_command(g.script(["touch ran-here"]), "rw", []), first=no_namespaces))
        got += [] if run.status == 4 else [f"run: status {run.status}"]
        got += ["model asked"] if "touch ran-here" in run.err else []
    return got + (["ran"] if (g.work / "ran-here").exists() else [])


@attack(
    19,
    "settings in the folder that ask for no sandbox: untrusted, and changed after they were trusted",
    "the key of the host is read",
)
def settings(g: Ground) -> list[str]:
    evil = 'sandbox = "unconfined"\n'
    harmless = "max_turns = 5".ljust(len(evil) - 1) + "\n"
    file = g.work / "stockade.toml"
    script = "\ntry: print('HIT', open(sys.argv[1]).read())\nexcept OSError: pass"
    env = {"STOCKADE_ALLOW_ROOT_UNCONFINED": "1"}
    file.write_text(evil)
    (g.work / "trusted.toml").write_text(harmless)
    g.own()
    got = ["untrusted" for _ in g.run(script, str(g.private / "key"), env=env, refused=True).hits]
    file.write_text(harmless)
    state = file.stat()
    if isinstance(g, Sealed):
        assert g.cli("trust", "--yes", "stockade.toml").status == 0
    file.write_text(evil)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    got += ["changed" for _ in g.run(script, str(g.private / "key"), env=env, refused=True).hits]
    file.unlink()
    file.symlink_to("trusted.toml")
    if isinstance(g, Sealed):
        g.cli("trust", "--yes", "stockade.toml")
    (g.work / "trusted.toml").write_text(evil)
    return got + ["behind a link" for _ in g.run(script, str(g.private / "key"), env=env, refused=True).hits]


def cut_off(g: Sealed, command: str) -> None:
    """A run in an rw folder, killed as soon as its command has written to log."""
    g.own()
    process = g.popen(g.bot_command(g.script([command]), "rw", []))
    assert until(lambda: (g.work / "log").exists() and (g.work / "log").stat().st_size), process.poll()
    os.killpg(process.pid, signal.SIGKILL)
    g.finish(process)


@attack(20, "kill -9 in the middle of a step, then resume", "the step is carried out twice")
def twice(g: Ground) -> list[str]:
    command = "echo once >> log; sleep 40"
    if isinstance(g, Sealed):
        cut_off(g, command)
        model = g.model(
            json.dumps({"tool_calls": [{"function": {"name": "finish", "arguments": '{"answer": "done"}'}}]})
        )
        again = g.cli("runs", "resume", "last", "--model", model, "--no-input")
        assert again.status in (0, 1), again
    else:
        for _ in range(2):
            process = g.popen(["sh", "-c", command])
            until(lambda: (g.work / "log").exists())
            time.sleep(0.3)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    count = (g.work / "log").read_text().count("once")
    return [f"{count} times"] if count > 1 else []


@attack(20, "kill -9 at the first sign of an effect", "the record does not have the step")
def unseen(g: Ground) -> list[str]:
    command = "echo effect-of-mine >> log; sleep 40"
    if not isinstance(g, Sealed):
        process = g.popen(["sh", "-c", command + "; echo effect-of-mine > record"])
        until(lambda: (g.work / "log").exists())
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return ["not on record"] if not (g.work / "record").exists() else []
    cut_off(g, command)
    return [] if "effect-of-mine" in g.cli("runs", "show", "last", "--json").out else ["not on record"]


@attack(20, "one cut run resumed four times at the same moment", "a step is carried out more than once")
def resumed_at_once(g: Ground) -> list[str]:
    step = "echo twice >> second; sleep 2"
    if isinstance(g, Sealed):
        cut_off(g, "echo once >> log; sleep 40")
        model = g.script(["true", step])
        resume = [*g.stockade(), "runs", "resume", "last", "--model", model, "--no-input"]
        starts = [g.popen(resume) for _ in range(4)]
    else:
        starts = [g.popen(["sh", "-c", step]) for _ in range(4)]
    for process in starts:
        g.finish(process)
    assert (g.work / "second").exists()
    count = (g.work / "second").read_text().count("twice")
    return [f"{count} times"] if count > 1 else []
