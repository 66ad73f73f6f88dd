"""A person's terminal: what it is sent when a bot tries to talk to it."""

import functools
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from stockade.approval.remembered import Approval, ApprovalFile
from stockade.testing import say
from tests.attack.attempts.terminal import SEQUENCES
from tests.support.fake_openai import FakeOpenAI, fails

_PATIENCE_S = 60.0


def seen_on_a_terminal(command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> bytes:
    """Everything sent to a pseudo-terminal that is the command's own controlling one, until nobody has it open."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            ["setsid", "-c", *command], stdin=theirs, stdout=theirs, stderr=theirs, env={**environment}, cwd=cwd
        ) as process:
            os.close(theirs)
            seen = bytearray()
            while select.select([ours], [], [], _PATIENCE_S)[0]:
                try:
                    seen += os.read(ours, 1 << 16)
                except OSError:  # EIO: the last one has closed it
                    break
            else:
                process.kill()
        return bytes(seen)
    finally:
        os.close(ours)


def environment_of(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "FORCE_COLOR")}
    return {**kept, "HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "200"}


def shown_by_nobody(base: Path) -> bytes:
    """The control: a program prints every sequence."""
    script = base / "all"
    script.write_bytes(b"\n".join(SEQUENCES.values()))
    return seen_on_a_terminal(["cat", str(script)], environment_of(base), base)


def shown_by_stockade(base: Path) -> bytes:
    """A bot thinks, says, prints, writes and names files with every sequence, its model is named by them, and a server
    and files of the machine hold them; the person runs it, looks, and makes mistakes.
    """
    texts = [sequence.decode() for sequence in SEQUENCES.values()]
    folder, home = base / "folder", base / "home"
    for path in (folder, home):
        path.mkdir()
    names = [text.replace("/", "") for text in texts]
    code = "\n".join(
        [f"texts = {texts!r}", f"names = {names!r}", "import sys",
         "for text, name in zip(texts, names):", "    print(text)", "    print(text, file=sys.stderr)",
         "    open('n' + name, 'w').write(text)"]
    )  # fmt: skip
    for text in texts:
        (folder / f"h{len(list(folder.iterdir()))}").write_text(f"{text}\n")
    answers = [
        say("shell", thought=" ".join(texts), command=f"python3 - <<'PY'\n{code}\nPY\nrm h*"),
        say("shell", thought="x", command=f": {json.dumps(texts)}\nprintf %s {json.dumps(' '.join(texts))}"),
        say("finish", answer=" ".join(texts)),
    ]
    script = base.joinpath(*names, "script.jsonl")
    script.parent.mkdir(parents=True)
    script.write_text("".join(json.dumps({"content": answer}) + "\n" for answer in answers))
    environment = environment_of(home)
    stockade = [sys.executable, "-m", "stockade.cli"]
    run = [*stockade, "run", "look", "--folder", str(folder), "--model", f"scripted/{script}", "--no-input"]
    looks = ("show last", "show last --full", "show last --json", "diff last", "diff last --json", "list",
             "list --json", "export last", "export last --format atif", "export last --format asciicast",
             "replay last --speed 0", "apply last")  # fmt: skip
    every = " ".join(texts)
    place = (f"{base}{every}:overlay",)
    one = {"place": place, "bot": f"b{every}", "words": ("q",), "text": every, "at": 1e9}
    ApprovalFile(home / ".local/state/stockade/approvals.jsonl").add([Approval.model_validate(one)])
    commands = [
        [*stockade, "sandbox", "exec", "--", "/usr/bin/python3", "-c", code.replace("open", "0 and open")],
        run, *([*stockade, "runs", *look.split()] for look in looks), [*stockade, "approvals", "list"],
        *([*stockade, *wrong] for wrong in ([every], [f"--{every}"], ["runs", "show", every], ["bots", every],
          ["run", f"@{every}"], ["run", "x", "--model", every], ["run", "x", "--folder", every],
          ["run", "x", "-o", every], ["run", "x", "--net", every], ["model", "info", f"gguf/{every}"], ["help", every],
          ["tool", "list", every], ["tool", "inspect", every])),
        [*stockade, "doctor", f"--{every}"],
    ]  # fmt: skip
    seen = b"".join(seen_on_a_terminal(command, environment, base) for command in commands)
    return seen + anyio.run(_of_a_server, [*stockade, "run", "x", "--no-input"], every, environment, base)


async def _of_a_server(run: Sequence[str], every: str, environment: Mapping[str, str], base: Path) -> bytes:
    """A server whose errors hold them, asked for a model of that name."""
    async with FakeOpenAI([fails(400, every, code=every, type=every)] * 20) as server:
        command = [*run, "--model", f"openai/{every}"]
        inside = {**environment, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        return await anyio.to_thread.run_sync(functools.partial(seen_on_a_terminal, command, inside, base))


def piped(command: Sequence[str], base: Path, home: Path) -> bytes:
    """What the same command writes to a pipe."""
    done = subprocess.run(
        [sys.executable, "-m", "stockade.cli", *command], capture_output=True, check=True, env=environment_of(home),
        cwd=base, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout


def typed_by(program: str, base: Path, *, sandboxed: bool) -> bytes:
    """What a terminal shows of a program in Python, started from it: as it is, or in `stockade sandbox exec`."""
    prefix = [sys.executable, "-m", "stockade.cli", "sandbox", "exec", "--"] if sandboxed else []
    return seen_on_a_terminal([*prefix, "/usr/bin/python3", "-c", program], environment_of(base), base)
