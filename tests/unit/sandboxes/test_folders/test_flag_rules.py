"""The rules as data, and how often they speak on ordinary work."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from stockade_sandbox.overlay import flag
from stockade_sandbox.overlay.flags import rules
from tests.unit.sandboxes.test_folders.helpers import Bench

PULL_REQUESTS = sorted((Path(__file__).parents[3] / "data/pull_requests").glob("*.patch"))


def _before(patch: Path, host: Path) -> None:
    """What a patch was made from: each file as its one hunk shows it."""
    for part in patch.read_text().split("diff --git ")[1:]:
        if "--- /dev/null" not in part:
            file = host / part.split()[0].removeprefix("a/")
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = re.split(r"\n@@.*@@\n", part)[1].rstrip("\n").split("\n")
            file.write_text("".join(f"{line[1:]}\n" for line in lines if not line.startswith("+")))


def test_ordinary_pull_requests_have_less_than_one_flag_each_and_nothing_is_held(bench: Bench) -> None:
    counted: dict[str, list[str]] = {}
    for patch in PULL_REQUESTS:
        subprocess.run(["rm", "-rf", bench.host, bench.top / "layers"], check=True)
        bench.host.mkdir()
        _before(patch, bench.host)
        bench.begin()
        bench.bash(f"patch -p1 < {patch}")
        changes = [change for change in bench.changes() if change.entry == "file"]
        assert len(changes) == patch.read_text().count("diff --git "), patch.name
        assert not any(change.held for change in changes), patch.name
        counted[patch.stem] = [change.path for change in changes if change.flagged]
    assert len(counted) == 10
    assert sum(map(len, counted.values())) < len(counted), counted


def test_each_rule_says_who_when_and_from_where() -> None:
    names = [name for rule in rules() for name in rule.names]
    assert len(names) == len(set(names)) >= 276
    assert all(name == name.casefold() for name in names)
    for rule in rules():
        assert rule.flag.why.startswith(rule.by)
        assert rule.source.startswith(("https://", "docs/")), rule.names
    assert {rule.when for rule in rules()} == {"entering", "opening", "pulling", "committing", "command", "asked"}


@pytest.mark.parametrize(
    ("held", "paths"),
    [
        (True, ".envrc mise.toml .vscode/tasks.json .idea/x.xml .nvim.lua .dir-locals.el .zed/tasks.json .exrc"),
        (True, ".git/hooks/pre-commit .gitmodules .husky/pre-push lefthook.yml .pre-commit-config.yaml .githooks/x"),
        (True, "CLAUDE.md AGENTS.md .claude/settings.json .mcp.json .cursor/rules/x.mdc .codex/x .gemini/x.json"),
        (True, "sitecustomize.py x.pth .cargo/config.toml build.rs build.gradle x.csproj x.desktop x.sublime-project"),
        (True, ".claude/skills/x/package.json .github/copilot-instructions.md .aider.conf.yml .venv/bin/git"),
        (True, ".devcontainer/devcontainer.json eslint.config.js .gitattributes tsconfig.json docs/AGENTS.MD"),
        (False, "conftest.py setup.py package.json pyproject.toml .npmrc .yarnrc.yml .pnpmfile.cjs Cargo.toml"),
        (False, "Rakefile Gemfile .github/workflows/x.yml .gitlab-ci.yml Jenkinsfile Dockerfile compose.yaml main.tf"),
        (False, ".env CMakeLists.txt x.service crontab go.mod composer.json tool.bat vite.config.ts Makefile pom.xml"),
    ],
)  # fmt: skip
def test_what_runs_by_itself_is_held_and_the_rest_is_shown(held: bool, paths: str) -> None:
    assert {path: one.held if (one := flag(path)) else None for path in paths.split()} == dict.fromkeys(
        paths.split(), held
    )


_PACKAGE = {"name": "x", "version": "1", "scripts": {"test": "vitest"}, "dependencies": {"a": "1"}}


@pytest.mark.parametrize(
    ("path", "before", "after", "counts"),
    [
        ("package.json", json.dumps(_PACKAGE), json.dumps({**_PACKAGE, "version": "2", "dependencies": {}}), False),
        ("package.json", json.dumps(_PACKAGE), json.dumps({**_PACKAGE, "scripts": {"postinstall": "x"}}), True),
        ("package.json", json.dumps(_PACKAGE), json.dumps({**_PACKAGE, "jest": {"preset": "./x"}}), True),
        ("package.json", "", json.dumps(_PACKAGE), True),
        ("package.json", "", '{"name": "x"}', False),
        ("package.json", "{}", "[" * 100_000, True),
        ("package.json", "{}", '{"scripts": ', True),
        ("package.json", '{"private": 1}', '{"workspaces": 1}', True),
        ("pyproject.toml", "[project]\nversion = '1'", "[project]\nversion = '2'\n[tool.ruff]\nx = 1", False),
        ("pyproject.toml", "", "[build-system]\nbuild-backend = 'mine'\nbackend-path = ['.']", True),
        ("pyproject.toml", "", "[tool.pytest.ini_options]\naddopts = '-p mine'", True),
        ("Cargo.toml", "[dependencies]\na = '1'", "[dependencies]\na = '2'", False),
        ("Cargo.toml", "[package]", "[package]\nbuild = 'x.rs'", True),
        ("go.mod", "go 1.22\n", "go 1.22\nrequire a.b/c v1.2.3 // indirect\n", False),
        ("go.mod", "go 1.22\n", "go 1.22\ntoolchain mine\n", True),
        ("go.mod", "go 1.22\n", "go 1.22\nreplace (\na.b/c => ../c\n)\n", True),
        ("Gemfile", "gem 'a'\n", "gem 'a', '~> 1.2'\n", False),
        ("Gemfile", "gem 'a'\n", "gem 'a'; system('x')\n", True),
        ("Gemfile", "gem 'a'\n", "gem 'a', '#{`x`}'\n", True),
        (".gitattributes", "", "* text=auto\n*.png binary\n", False),
        (".gitattributes", "", "* filter=lfs\n", True),
        ("tsconfig.json", "{}", '{"compilerOptions": {"strict": true}}', False),
        ("tsconfig.json", "{}", '{"compilerOptions": {"plugins": [{"name": "./x"}]}}', True),
    ],
)
def test_a_file_counts_by_what_was_changed_in_it(path: str, before: str, after: str, counts: bool) -> None:
    assert bool(flag(path, texts=lambda: (before.encode(), after.encode()))) == counts
    assert flag(path)  # what cannot be read counts
    assert flag(path, entry="symlink", texts=lambda: (before.encode(), after.encode()))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_what_is_not_plain_utf_8_counts(encoding: str) -> None:
    """Python's JSON would read it; who runs the file may read something else."""
    text = '{"name": "x"}'
    assert flag("package.json", texts=lambda: (b"", text.encode())) is None
    assert flag("package.json", texts=lambda: (b"", text.encode(encoding)))


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("pyproject.toml", '"," ' + '."é"' * 200_000 + " = 1"),
        ("pyproject.toml", "'#'" + '."\\""' * 200_000 + " = 1"),
        ("pyproject.toml", "a" + ".a" * 400_000 + " = 1"),
        ("go.mod", " " * 900_000 + "!"),
        ("Gemfile", "\t " * 400_000 + "!"),
        (".gitattributes", "a" + " " * 900_000 + "!"),
    ],
    ids=["quoted keys", "escapes", "pyproject.toml", "go.mod", "Gemfile", ".gitattributes"],
)
def test_no_file_holds_the_review_up(path: str, after: str) -> None:
    """Each took a time that grew with the square of its size: hours."""
    assert flag(path, texts=lambda: (b"", after.encode()))


@pytest.mark.parametrize("path", [".env.example", ".github/ISSUE_TEMPLATE/x.md", ".github/CODEOWNERS", "src/tasks.py"])
def test_what_only_looks_like_one_is_none(path: str) -> None:
    assert flag(path) is None
