"""What the sandbox must see so that components can be called inside: Python, wasmtime and our side of it, read-only."""

import sys
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from stockade.core.errors import UsageError
from stockade.core.policy import FolderRule, Policy

ROOT = "/opt/stockade"
_LIBRARIES = f"{ROOT}/lib"
_INSIDE = "stockade/tools/wasm/inside"
_START = f"import sys; sys.path.insert(0, {_LIBRARIES!r}); from stockade.tools.wasm.inside.main import main; main()"

PROBE = f"import sys; sys.path.insert(0, {_LIBRARIES!r}); import wasmtime"


def interpreter() -> Path:
    """Of this process, without its virtual environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def argv() -> tuple[str, ...]:
    """The program inside: no site packages, no environment, nothing of the working folder is imported."""
    return (str(interpreter()), "-I", "-S", "-B", "-c", _START)


def lent(policy: Policy, compiled: tuple[Path, ...] = ()) -> Policy:
    """The policy with these folders in it, each once. UsageError when wasmtime is not installed."""
    rules = [
        _rule(Path(__file__).parent / "inside", f"{_LIBRARIES}/{_INSIDE}"),
        _rule(_wasmtime(), f"{_LIBRARIES}/wasmtime"),
        *(_rule(folder, inside_of(folder)) for folder in compiled),
    ]
    prefix = Path(sys.base_prefix).resolve()
    if not PurePosixPath(prefix).is_relative_to("/usr"):
        rules.insert(0, _rule(prefix, str(prefix)))
    known = {rule.inside for rule in policy.lent}
    return policy.model_copy(update={"lent": (*policy.lent, *(rule for rule in rules if rule.inside not in known))})


def inside_of(folder: Path) -> str:
    """Where the sandbox sees a folder of the cache."""
    return f"{ROOT}/compiled/{folder.name}"


def _rule(host: Path, inside: str) -> FolderRule:
    return FolderRule(host=str(host), mode="ro", inside=inside)


def _wasmtime() -> Path:
    """Found, not imported: none of it runs in this process."""
    found = find_spec("wasmtime")
    if found is None or found.origin is None:
        raise UsageError("WebAssembly tools need wasmtime", "pip install 'stockade[wasm]'")
    return Path(found.origin).parent
