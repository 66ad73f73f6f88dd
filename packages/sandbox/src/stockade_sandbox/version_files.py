"""What version files ask for: `.python-version`, `.nvmrc`, `go.mod` and others. Any of them may have been written by a
bot: what is in none of these forms asks for nothing.
"""

import json
from collections.abc import Callable, Iterator
from os.path import isfile
from pathlib import Path
from typing import Any

from stockade_sandbox.toml import parse_toml

_MOST = 1 << 16
"""Bytes of a version file; a longer one is none."""
_SAME = {"nodejs": "node", "golang": "go", "rust-toolchain": "rust"}


def versions_of(place: Path) -> Iterator[tuple[str, str, str]]:
    """(file, language, version) for each that the version files of a folder ask for."""
    for name, (language, read) in _VERSION_FILES.items():
        for found, version in read(language, text_of(place / name)):
            words = version.split()
            if words and not words[0].startswith("#"):
                yield str(place / name), _SAME.get(found, found), words[0].removeprefix("ref:").removeprefix("ruby-")


def text_of(path: Path) -> str:
    """Of a regular file of reasonable size; "" for any other, and for one that is not there."""
    try:
        return path.read_text(errors="replace") if isfile(path) and path.stat().st_size <= _MOST else ""
    except OSError:
        return ""


def toml_of(text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError:
        return {}


def _of_line(language: str, text: str) -> Iterator[tuple[str, str]]:
    """The whole file is one version, or one a line, the first of which counts."""
    yield from [(language, line.strip()) for line in text.splitlines() if line.strip()][:1]


def _of_pairs(_: str, text: str) -> Iterator[tuple[str, str]]:
    """`language version` or `language=version` on each line."""
    for line in text.splitlines():
        words = line.replace("=", " ").split()
        if len(words) > 1:
            yield words[0], words[1]


def _of_mise(_: str, text: str) -> Iterator[tuple[str, str]]:
    tools = toml_of(text).get("tools")
    for language, given in (tools if isinstance(tools, dict) else {}).items():
        one = given[0] if isinstance(given, list) and given else given
        version = one.get("version") if isinstance(one, dict) else one
        yield language, str(version or "")


def _of_rust(language: str, text: str) -> Iterator[tuple[str, str]]:
    toolchain = toml_of(text).get("toolchain")
    if isinstance(toolchain, dict):
        yield language, str(toolchain.get("channel", ""))
    elif "[" not in text:
        yield from _of_line(language, text)


def _of_go(language: str, text: str) -> Iterator[tuple[str, str]]:
    """`toolchain go1.22.1` counts before `go 1.22`."""
    found = {words[0]: words[1] for line in text.splitlines() if len(words := line.split()) == 2}
    if version := found.get("toolchain") or found.get("go"):
        yield language, version.removeprefix("go")


def of_json(language: str, text: str) -> Iterator[tuple[str, str]]:
    """package.json's `volta.node`, and what volta itself keeps as `node.runtime`."""
    try:
        given = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return
    for outer, inner in (("volta", language), (language, "runtime")):
        found = given.get(outer) if isinstance(given, dict) else None
        if isinstance(found, dict) and isinstance(found.get(inner), str):
            yield language, found[inner]


_VERSION_FILES: dict[str, tuple[str, Callable[[str, str], Iterator[tuple[str, str]]]]] = {
    ".tool-versions": ("", _of_pairs),
    "mise.toml": ("", _of_mise),
    ".mise.toml": ("", _of_mise),
    ".config/mise/config.toml": ("", _of_mise),
    ".sdkmanrc": ("", _of_pairs),
    ".python-version": ("python", _of_line),
    ".nvmrc": ("node", _of_line),
    ".node-version": ("node", _of_line),
    "package.json": ("node", of_json),
    ".ruby-version": ("ruby", _of_line),
    ".go-version": ("go", _of_line),
    "go.mod": ("go", _of_go),
    "rust-toolchain.toml": ("rust", _of_rust),
    "rust-toolchain": ("rust", _of_rust),
}
