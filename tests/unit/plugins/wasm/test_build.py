"""Building: what is missing is said with the way to it, a compiler's failure in a line. Real builds: tests/wasm."""

import sys
from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.plugins.wasm import build as builds
from stockade.plugins.wasm.build import build
from tests.support import wasm


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no compiler is found but those in `bin`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin-of-nobody")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    return programs


def _program(programs: Path, name: str, script: str) -> None:
    path = programs / name
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "what", "way_out"),
    [
        ("t.py", "componentize-py is needed", "pip install componentize-py"),
        ("t.js", "jco is needed", "npm install"),
        ("t.c", "clang-19 is needed", "apt install clang-19"),
        ("t.rs", "rustc is needed", "rustup"),
    ],
)
def test_a_missing_toolchain_is_named_with_the_way_to_it(
    tmp_path: Path, alone: Path, name: str, what: str, way_out: str
) -> None:
    source = tmp_path / name
    source.write_text("x")
    with pytest.raises(UsageError) as found:
        build(source)
    assert what in found.value.message
    assert way_out in str(found.value.hint)


def test_a_rust_without_the_target_is_told_so(tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "_SYSTEM_RUST", "/no/such/rustc")
    _program(alone, "rustc", "echo /no/such/folder")
    source = tmp_path / "t.rs"
    source.write_text("x")
    with pytest.raises(UsageError) as found:
        build(source)
    assert found.value.hint is not None
    assert "rustup target add wasm32-wasip1" in found.value.hint
    assert "libstd-rust-dev-wasm32" in found.value.hint


def test_the_systems_rust_builds_where_the_first_one_has_no_target(
    tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rustup's rustc stands first on the PATH; Debian's is 1.63 and calls the target by its old name."""
    _program(alone, "rustc", "echo nothing for this target >&2; exit 1")
    known = f'case "$*" in *wasm32-wasip1*) exit 1;; *target-libdir*) echo {tmp_path};; *) echo $* >&2; exit 1;; esac'
    _program(alone, "debians", known)
    monkeypatch.setattr(builds, "_SYSTEM_RUST", str(alone / "debians"))
    source = tmp_path / "t.rs"
    source.write_text("x")
    with pytest.raises(UsageError, match="cannot be built: debians: --target wasm32-wasi "):
        build(source)


def test_a_tool_that_uses_wasi_is_told_of_the_adapter(tmp_path: Path, alone: Path) -> None:
    _program(alone, "clang-19", "touch core.wasm")
    words = "module requires an import interface named `wasi_snapshot_preview1`"
    _program(alone, "wasm-tools", f"[ $2 = embed ] || {{ echo 'error: {words}' >&2; exit 1; }}")
    source = tmp_path / "t.c"
    source.write_text("x")
    with pytest.raises(UsageError) as found:
        build(source)
    assert words in found.value.message
    assert "--adapter FILE" in str(found.value.hint)


def test_a_failing_compiler_is_one_line_without_its_colours(tmp_path: Path, alone: Path) -> None:
    _program(alone, "componentize-py", r"printf 'Traceback\n\033[31mSyntaxError: bad\033[0m\n' >&2; exit 3")
    source = tmp_path / "t.py"
    source.write_text("x")
    with pytest.raises(UsageError) as found:
        build(source)
    assert "SyntaxError: bad" in found.value.message
    assert found.value.message.isprintable()


def test_a_compiler_that_makes_no_component_is_found_out(tmp_path: Path, alone: Path) -> None:
    _program(alone, "componentize-py", 'while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"')
    source = tmp_path / "t.py"
    source.write_text("x")
    with pytest.raises(UsageError, match="no WebAssembly"):
        build(source)
    assert not (tmp_path / "t.wasm").exists()


def test_what_is_built_lies_beside_the_source(tmp_path: Path, alone: Path) -> None:
    (alone / "given.wasm").write_bytes(wasm.ECHO.read_bytes())
    _program(alone, "componentize-py", f'while [ "$1" != -o ]; do shift; done; cp {alone}/given.wasm "$2"')
    source = tmp_path / "my_tool.py"
    source.write_text("")
    assert build(source) == tmp_path / "my-tool.wasm"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.wit": "package a:a; world x {}", "b.wit": "package a:a; world y {}"}, "say which one: --wit"),
        ({"a.wit": "package a:a; world x {}\nworld y {}"}, "say which one: --world"),
        ({"a.wit": "package a:a;"}, "has 0 worlds"),
    ],
)
def test_which_wit_and_world_is_asked_when_it_is_not_clear(
    tmp_path: Path, alone: Path, files: dict[str, str], words: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    source = tmp_path / "t.py"
    source.write_text("x")
    with pytest.raises(UsageError) as found:
        build(source)
    assert words in f"{found.value.message} {found.value.hint}"
