"""What the sandbox must see so that components can be called inside: Python, wasmtime and our side of it, read-only."""

import py_compile
import sys
from contextlib import suppress
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source, find_spec
from pathlib import Path, PurePosixPath

from stockade.core.errors import UsageError, to_install
from stockade.core.policy import FolderRule, Policy

ROOT = "/opt/stockade"
_LIBRARIES = f"{ROOT}/lib"
_INSIDE = "stockade/tools/wasm/inside"
_PATH = f"sys.path.insert(0, {_LIBRARIES!r})"
_START = f"import gc, sys; gc.disable(); {_PATH}; from {_INSIDE.replace('/', '.')}.main import main; main()"
"""No garbage is looked for while modules are loaded: a tenth of what the start costs. `main` turns it on."""

PROBE = f"import sys; {_PATH}; import wasmtime"


def interpreter() -> Path:
    """Of this process, without its virtual environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def argv() -> tuple[str, ...]:
    """The program inside: no site packages, no environment, nothing of the working folder is imported."""
    return (str(interpreter()), "-I", "-S", "-B", "-c", _START)


def lent(policy: Policy, compiled: tuple[Path, ...] = ()) -> Policy:
    """The policy with these folders in it, each once. UsageError when wasmtime is not installed."""
    rules = [
        _rule(with_bytecode(Path(__file__).parent / "inside"), f"{_LIBRARIES}/{_INSIDE}"),
        _rule(with_bytecode(_wasmtime()), f"{_LIBRARIES}/wasmtime"),
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
        raise UsageError("WebAssembly tools need wasmtime", to_install("wasm"))
    return Path(found.origin).parent


@cache
def with_bytecode(folder: Path) -> Path:
    """The folder, with Python's byte code of its modules where Python itself would keep it.

    Here nobody imports them, and the sandbox cannot write: an installer that compiles nothing (uv) would make every
    start twice as long. Where it cannot be written, or PYTHONDONTWRITEBYTECODE asks for none, that is so.
    """
    if not sys.dont_write_bytecode:
        for source in sorted(folder.rglob("*.py")):
            if not _has_bytecode(source):
                with suppress(OSError):
                    py_compile.compile(str(source), quiet=2)
    return folder


def _has_bytecode(source: Path) -> bool:
    """Whether Python would use what is there: PEP 552, of this source's time and size, or checked by its hash."""
    try:
        found = source.stat()
        with open(cache_from_source(str(source)), "rb") as file:
            head = file.read(16)
    except OSError:
        return False
    made_from = b"".join(value.to_bytes(4, "little") for value in (int(found.st_mtime), found.st_size))
    return head[:4] == MAGIC_NUMBER and (head[4:8] != bytes(4) or head[8:] == made_from)
