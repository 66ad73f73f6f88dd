"""docs/settings.md names all that is read, and its example is read; the scripts of docs/extending.md are answers."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.core.model_options import LLAMA_VARIABLES
from stockade.models.providers import PROVIDERS
from stockade.runtime.settings import KEYS, load
from stockade.runtime.sources import OTHER_VARIABLES, PREFIX, config_file
from tests.docs.shown import ROOT, blocks

PAGE = (ROOT / "docs" / "settings.md").read_text()
EXAMPLE = blocks(PAGE, "toml")[0]
ANSWERS = blocks((ROOT / "docs" / "extending.md").read_text(), "json")
SCRIPTS = dict(zip(("json", "fenced", "native"), ANSWERS, strict=True))
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]|CI|[a-z]+_proxy")
ASKS = re.compile(r"environ|envvar|STOCKADE_|OTEL_")
"""Without one of these nothing is `asked_for`."""
ELSEWHERE = {
    "HTTP_PROXY": "the small letters", "HTTPS_PROXY": "the small letters", "STOCKADE_NO_VARIABLE": "never set",
    "STOCKADE_WHEEL_MACHINE": "of whoever builds a wheel",
}  # fmt: skip


def asked_for(tree: ast.AST) -> Iterator[str]:
    """Names that a module asks of an environment as they stand there, or keeps in a constant to ask for."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="get" | "getenv", value=where), args=[ast.Constant(name), *_]):
                found = [name] if "environ" in ast.unparse(where) else []
            case ast.Subscript(value=where, slice=ast.Constant(name)):
                found = [name] if "environ" in ast.unparse(where) else []
            case ast.Compare(left=ast.Constant(name), comparators=[where]):
                found = [name] if "environ" in ast.unparse(where) else []
            case ast.keyword(arg="envvar", value=ast.Constant(name)):
                found = [name]
            case ast.Assign(value=value):
                texts = (str(one.value) for one in ast.walk(value) if isinstance(one, ast.Constant))
                found = [text for text in texts if text.startswith(("STOCKADE_", "OTEL_"))]
            case _:
                found = []
        yield from (text for text in found if isinstance(text, str) and VARIABLE.fullmatch(text))


def test_every_variable_is_named() -> None:
    texts = [text for path in (ROOT / "packages").rglob("*.py") if ASKS.search(text := path.read_text())]
    read = {name for text in texts for name in asked_for(ast.parse(text))}
    assert {"STOCKADE_MODELS", "HF_ENDPOINT", "XDG_RUNTIME_DIR", "CI", "STOCKADE_TOKEN_FILE"} <= read
    read |= OTHER_VARIABLES
    read |= {name for one in PROVIDERS.values() for name in (*one.url_variables, *one.key_variables)}
    named = set(VARIABLE.findall(PAGE))
    assert not read - named - ELSEWHERE.keys()


def test_every_variable_of_ours_that_is_named_is_read() -> None:
    """In any page: a setting, or one of the others."""
    code = "".join(path.read_text() for path in (ROOT / "packages").rglob("*.py"))
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for name in set(re.findall(r"\bSTOCKADE_[A-Z_]*[A-Z]\b", page.read_text())) - {"STOCKADE_NAME"}:
            assert name.removeprefix(PREFIX).lower() in KEYS or f'"{name}"' in code, f"{page.name}: {name}"
        for name in set(re.findall(r"`LLAMA_([A-Z_]*[A-Z])\b", page.read_text())) - {"NAME"}:
            assert name in LLAMA_VARIABLES or f"LLAMA_{name}" in code, f"{page.name}: LLAMA_{name}"


def test_the_example_is_read_as_it_stands(tmp_path: Path) -> None:
    config_file().parent.mkdir(parents=True)
    config_file().write_text(EXAMPLE)
    settings = load({"max_turns": 3}, {"STOCKADE_TIMEOUT": "60"}, tmp_path)
    options = json.loads(settings.options.model_dump_json(by_alias=True))
    expected = {**tomllib.loads(EXAMPLE), "max_turns": 3, "timeout": 60.0}
    assert {key: options[key] for key in expected} == expected


def test_a_run_takes_the_example(tmp_path: Path) -> None:
    """Beside a folder's file that nobody trusted."""
    config_file().parent.mkdir(parents=True)
    config_file().write_text(EXAMPLE)
    (tmp_path / "stockade.toml").write_text("max_turns = 5\n")
    (tmp_path / "script.jsonl").write_text(SCRIPTS["native"])
    done = run(tmp_path, "Count", "--model", "scripted/script.jsonl", "--json")
    first = json.loads(done.stdout.splitlines()[0])
    assert (first["budget"]["max_turns"], first["policy"]["limits"]["memory_bytes"]) == (30, 2 << 30)
    assert "was not read: it is not trusted as it stands" in done.stderr


@pytest.mark.parametrize("answers", sorted(SCRIPTS))
def test_a_script_is_answers(answers: str, tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text(SCRIPTS[answers])
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "data.csv").write_text("a\nb\n")
    flags = ("--folder", "demo", "--model", "scripted/script.jsonl", "--answers", answers, "--quiet", "--apply")
    done = run(tmp_path, "Count the lines", *flags)
    assert (done.stdout, done.returncode) == ("12 lines\n", 0), done.stderr
    assert (tmp_path / "demo" / "count.txt").read_text() == "2\n"


@pytest.mark.parametrize("answers", ["json"])
def test_fences_are_no_answers_of_others(answers: str, tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text(SCRIPTS["fenced"])
    done = run(tmp_path, "Count the lines", "--model", "scripted/script.jsonl", "--answers", answers)
    assert done.returncode == 3, done.stderr
    assert "unreadable" in done.stderr


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stockade", "run", *words], cwd=folder, capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
