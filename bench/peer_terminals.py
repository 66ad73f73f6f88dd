"""What codex, Claude Code and goose let a command do, driven by a server on loopback that plays the model
(docs/compare.md).

    npm install @openai/codex @anthropic-ai/claude-code @aaif/goose-binary-linux-x64   # Claude Code: node install.cjs
    .venv/bin/python -m bench.peer_terminals node_modules FOLDER

FOLDER is made, and must not lie below /tmp: codex has no sandbox with its files there. The model answers with one
command, which writes into the project, beside it and into /tmp, connects to loopback, and prints a variable and a file.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.clients.player import Player

PATIENCE_S = 120
COMMAND = (
    "echo x > new.txt; echo x > {beside}/out; echo x > /tmp/stockade-peer; (exec 3<>/dev/tcp/127.0.0.1/{port} &&"
    " echo CONNECTED$((1))); echo VARIABLE $MY_API_TOKEN; cat {beside}/secret"
)


def tried(argv: list[str], folder: Path, port: int) -> str:
    """What is there after it, and what it said."""
    project, outside = folder / "project", Path("/tmp/stockade-peer")
    for path in (project / "new.txt", folder / "out", outside):
        path.unlink(missing_ok=True)
    address = f"http://127.0.0.1:{port}"
    environ = {**os.environ, "HOME": str(folder / "home"), "CODEX_HOME": str(folder / "codex"), "KEY": "x",
               "ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "sk-ant-x", "MY_API_TOKEN": "wonderful",
               "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "gpt-4o",
               "OPENAI_HOST": address, "OPENAI_API_KEY": "x", "GOOSE_DISABLE_KEYRING": "1"}  # fmt: skip
    done = subprocess.run(argv, cwd=project, env=environ, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE_S, check=False)  # fmt: skip
    wrote = [str(path) for path in (project / "new.txt", folder / "out", outside) if path.exists()]
    seen = [word for word in ("CONNECTED1", "VARIABLE wonderful", "topsecret") if word in done.stdout]
    return f"status {done.returncode} · wrote {wrote} · saw {seen}"


def main() -> None:
    programs, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    for name in ("project", "home", "codex"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "secret").write_text("topsecret\n")
    subprocess.run(["git", "init", "--quiet", folder / "project"], check=True)
    with Player() as player:
        script = COMMAND.format(beside=folder, port=player.port)
        (folder / "codex" / "config.toml").write_text(
            'model = "m"\nmodel_provider = "fake"\n[model_providers.fake]\nname = "fake"\nwire_api = "responses"\n'
            f'base_url = "http://127.0.0.1:{player.port}/v1"\nenv_key = "KEY"\n'
        )
        goose = next(programs.glob("@aaif/goose-binary-*/bin/goose"))
        codex = (str(programs / ".bin/codex"), "exec_command", {"cmd": script})
        claude = (str(programs / ".bin/claude"), "Bash", {"command": script, "description": "x"})
        for (program, tool, arguments), *words in (
            (codex, "exec", "--json", "do it"),
            (codex, "exec", "-s", "workspace-write", "--json", "do it"),
            (claude, "-p", "do it", "--output-format", "stream-json", "--verbose"),
            (claude, "-p", "do it", "--allowedTools", "Bash", "--output-format", "stream-json", "--verbose"),
            ((str(goose), "shell", {"command": script}), "run", "-t", "do it", "--output-format", "stream-json"),
        ):
            player.steps = [(tool, arguments)]
            version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
            print(f"{version}: {' '.join(words)}\n  {tried([program, *words], folder, player.port)}", flush=True)


if __name__ == "__main__":
    main()
