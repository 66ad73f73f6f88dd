import os
from pathlib import Path

import pytest

from stockade_sandbox.overlay import flag
from stockade_sandbox.overlay.flags import refusal
from stockade_sandbox.overlay.safe_fs import Node
from tests.unit.sandboxes.test_folders.helpers import Bench


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".git/config", ".git/commondir", ".git/objects/ab/cd", ".git/info/attributes",
        ".GIT/config", ".git", "vendor/.git/config", "vendor/lib/.git", "bare.git/hooks/post-update",
        "bare.git/HEAD", "bare.git/config", ".envrc", "sub/.envrc", ".vscode/tasks.json", ".idea/workspace.xml",
        ".husky/pre-push", ".github/workflows/ci.yml", "conftest.py", "tests/conftest.py", "x.pth",
        "sitecustomize.py", "setup.py", "Makefile", "sub/GNUmakefile", "rules.mk", "justfile", "package.json",
        ".bashrc", ".profile", ".gitmodules", ".mcp.json", "AGENTS.md", "CLAUDE.md", "stockade.toml",
        ".pre-commit-config.yaml", ".gitattributes", "vite.config.ts", ".cargo/config.toml", "pyproject.toml",
        ".devcontainer/devcontainer.json", ".env", "x.desktop", "Dockerfile",
    ],
)  # fmt: skip
def test_what_would_run_on_the_host_is_flagged(path: str) -> None:
    assert flag(path)


@pytest.mark.parametrize("path", ["a.py", "src/git/config.py", "docs/hooks.md", ".gitignore", "README.md", "head.txt"])
def test_plain_files_are_not(path: str) -> None:
    assert flag(path) is None


def test_hooks_are_named_louder_than_objects() -> None:
    assert flag(".git/hooks/x") != flag(".git/objects/x")
    assert "inside the folder" in (flag("a/.git/config") or "")


def test_an_executable_bit_is_flagged_when_it_is_new() -> None:
    assert flag("x", mode=0o755)
    assert flag("x", mode=0o755, mode_before=0o644)
    assert flag("x", mode=0o755, mode_before=0o755) is None
    assert flag("x", mode=0o755, entry="directory") is None


def test_deletions_are_flagged_only_in_git() -> None:
    assert flag("Makefile", deleted=True) is None
    assert flag(".git/config", deleted=True)


@pytest.mark.parametrize(
    ("path", "target", "leaves"),
    [
        ("l", "/etc/passwd", True),
        ("l", "../x", True),
        ("l", "..", True),
        ("a/l", "../x", False),
        ("a/l", "../../x", True),
        ("a/b/l", "../..", False),
        ("l", "a/../../x", True),
        ("l", "a/..", True),
        ("l", "./a/./b", False),
        ("a/l", "./../b", False),
        ("l", "..x", False),
        ("l", "a", False),
    ],
)
def test_symlinks_that_may_leave_are_refused(tmp_path: Path, path: str, target: str, leaves: bool) -> None:
    link = tmp_path / "link"
    link.symlink_to(target)
    assert bool(refusal(path, Node(link.lstat(), os.readlink(link)))) == leaves


def test_what_can_never_be_applied_is_refused(bench: Bench) -> None:
    bench.bash(
        "ln -s /etc/passwd abs; ln -s ../../x out; mkfifo pipe; touch suid sgid; chmod u+s suid; chmod g+s sgid; "
        "/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; "
        "mkdir -m 2755 shared; touch fine; mknod dev c 1 3"
    )
    found = bench.by_path()
    refused = {path for path, change in found.items() if change.refused}
    devices = set() if bench.how == "user" else {"dev"}
    assert refused == {"abs", "out", "pipe", "suid", "sgid", "sock"} | devices
    assert {path for path in found if path not in refused} == {"shared", "fine"}
    assert found["shared"].mode == 0o755


def test_the_trick_through_another_symlink(bench: Bench) -> None:
    """`sub/dot/../..` looks like the folder itself and is the folder above it."""
    bench.bash("mkdir sub; ln -s . sub/dot; ln -s dot/../../secret sub/out")
    assert {path for path, change in bench.by_path().items() if change.refused} == {"sub/out"}
