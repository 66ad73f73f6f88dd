import os
import subprocess
from pathlib import Path

import pytest

from stockade_sandbox.overlay import Review, flag
from stockade_sandbox.overlay.flags import never, refusal
from stockade_sandbox.overlay.safe_fs import Node
from stockade_sandbox.results import EntryKind
from tests.unit.sandboxes.test_folders.helpers import Bench

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# https://bford.info/cachedir/\n"


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
        ".devcontainer/devcontainer.json", ".env", "x.desktop", "Dockerfile", ".devcontainer.json",
        ".helix/languages.toml", ".gemini/settings.json", ".project", ".pdbrc", ".Rprofile", ".irbrc", ".bazelrc",
        "Directory.Build.props", "gradle/wrapper/gradle-wrapper.properties", "settings.gradle.kts", "flake.nix",
        "CMakePresets.json", ".sqliterc", ".screenrc", ".luarc.json", ".pnp.cjs", ".ocamlinit", ".ghci",
        ".julia/config/startup.jl", ".octaverc", ".jj/repo/config.toml", ".hg/hgrc", ".rspec", ".pryrc", ".swcrc",
        ".venv/bin/git", "node_modules/.bin/eslint", ".github/actions/x/action.yml", "pylintrc", "docs/conf.py",
        "x-gdb.py", ".latexmkrc", "Package.swift", "mix.exs", "Cargo.toml", "BUILD", "go.work", ".kube/config",
    ],
)  # fmt: skip
def test_what_would_run_on_the_host_is_flagged(path: str) -> None:
    assert flag(path)


@pytest.mark.parametrize(
    "path",
    [
        "a.py", "src/git/config.py", "docs/hooks.md", ".gitignore", "README.md", "head.txt", "src/a.spec.ts",
        "x/y.json", "lib/a.c", "bin/tool", "src/settings.py", "tests/test_a.py", "index.html", "data.csv",
        "requirements.txt",
    ],
)  # fmt: skip
def test_plain_files_are_not(path: str) -> None:
    assert flag(path) is None


def test_hooks_are_named_louder_than_objects() -> None:
    assert flag(".git/hooks/x") != flag(".git/objects/x")
    found = flag("a/.git/config")
    assert found is not None
    assert "inside the folder" in found.why


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


def test_what_the_users_own_git_settings_name_is_flagged(bench: Bench) -> None:
    for name in ("tools/clean", "tools/hooks/old", "gitinc", "real/hook", "plain", "alias.sh"):
        bench.write(name, "# as it was")
    (bench.host / "linked").symlink_to("real")
    subprocess.run(["git", "init", "-q", bench.host], check=True)
    for key, value in (
        ("core.hooksPath", "tools/hooks"),
        ("filter.fmt.clean", "tools/clean --stdin %f"),
        ("include.path", "../gitinc"),
        ("core.fsmonitor", f"sh '{bench.host}/linked/hook'"),
        ("alias.go", "!./alias.sh"),
        ("user.name", "plain"),
    ):
        subprocess.run(["git", "-C", bench.host, "config", key, value], check=True)
    bench.begin()
    bench.bash("for i in tools/clean tools/hooks/new gitinc real/hook plain alias.sh; do echo 1 > $i; done")
    flagged = {path: change.flagged or "" for path, change in bench.by_path().items()}
    assert {path for path, why in flagged.items() if "git runs or obeys it" in why} == {
        "tools/clean", "gitinc", "real/hook", "alias.sh",
    }  # fmt: skip
    assert flagged["tools/hooks/new"]
    assert flagged["plain"] == ""
    bench.bash("rm -r tools; ln -s real tools")
    assert "hookspath" in (bench.by_path()["tools"].flagged or "").lower()


def test_git_on_the_users_path_is_not_asked(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bot may have put it there: into a virtual environment in a folder given rw."""
    subprocess.run(["git", "init", "-q", bench.host], check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    bench.begin()
    bench.bash("echo 1 > a")
    assert set(bench.by_path()) == {"a"}
    assert not (tmp_path / "ran").exists()


def test_caches_are_left_out_and_counted(bench: Bench) -> None:
    bench.write("pkg/__pycache__/old.pyc", "x")
    bench.write("gone/__pycache__/old.pyc", "x")
    bench.write("kept/x", "x")
    bench.begin()
    bench.bash(
        "echo 1 > pkg/__pycache__/old.pyc; mkdir -p .pytest_cache/v node_modules/.cache/x new/__pycache__; "
        "echo 1 > .pytest_cache/v/last; echo 1 > node_modules/.cache/x/y; echo 1 > new/__pycache__/a.pyc; "
        "echo 1 > new/a.py; rm -r gone; echo 1 > __pycache__.py; mkdir -p only/__pycache__"
    )
    every = {change.path for change in bench.changes()}
    bench.review = Review(caches=False)
    gone = {"gone", "gone/__pycache__", "gone/__pycache__/old.pyc"}
    assert set(bench.by_path()) == {"__pycache__.py", "new", "new/a.py", *gone}
    assert bench.review.left_out(bench.layer) == {"__pycache__": 4, ".pytest_cache": 3, "node_modules/.cache": 3}
    assert {"node_modules", "only"} < every
    bench.apply()
    assert not (bench.host / "gone").exists()
    assert (bench.host / "pkg/__pycache__/old.pyc").read_text() == "x"
    assert sorted(path.name for path in bench.host.iterdir()) == ["__pycache__.py", "kept", "new", "pkg"]
    assert not bench.changes()


def test_a_folder_that_says_so_itself_is_a_cache(bench: Bench) -> None:
    bench.write("target/CACHEDIR.TAG", TAG)
    bench.write("target/old", "x")
    bench.write("src/a.rs", "x")
    bench.write("own/CACHEDIR.TAG", "x")
    bench.begin()
    bench.bash(
        "echo 1 > target/old; mkdir -p build/deps linked pipe; cp target/CACHEDIR.TAG build; echo 1 > build/deps/x; "
        "cp target/CACHEDIR.TAG src; echo 2 > src/a.rs; echo 2 > own/b; ln -s ../build/CACHEDIR.TAG linked; "
        "mkfifo pipe/CACHEDIR.TAG"
    )
    bench.review = Review(caches=False)
    shown = {"src/CACHEDIR.TAG", "src/a.rs", "own/b", "linked", "linked/CACHEDIR.TAG", "pipe", "pipe/CACHEDIR.TAG"}
    assert set(bench.by_path()) == shown  # what a bot writes beside files of yours hides none of them
    assert bench.review.left_out(bench.layer) == {"target": 1, "build": 4}
    bench.review = Review()
    assert set(bench.by_path()) == {*shown, "target/old", "build", "build/CACHEDIR.TAG", "build/deps", "build/deps/x"}


def test_what_was_built_and_nothing_else_is_shown(bench: Bench) -> None:
    bench.begin()
    bench.bash(f"mkdir -p target __pycache__; printf '{TAG}' > target/CACHEDIR.TAG; touch target/app __pycache__/a.pyc")
    bench.review = Review(caches=False)
    assert set(bench.by_path()) == {"target", "target/CACHEDIR.TAG", "target/app"}
    assert bench.review.left_out(bench.layer) == {"__pycache__": 2}
    bench.bash("echo 1 > a")
    assert set(bench.by_path()) == {"a"}
    assert bench.review.left_out(bench.layer) == {"__pycache__": 2, "target": 3}


def test_a_cache_that_is_thrown_away_is_a_change(bench: Bench) -> None:
    bench.write("target/CACHEDIR.TAG", TAG)
    bench.begin()
    bench.bash("rm -r target; echo 1 > target")
    bench.review = Review(caches=False)
    assert set(bench.by_path()) == {"target", "target/CACHEDIR.TAG"}


@pytest.mark.parametrize(
    ("path", "entry", "is_never"),
    [
        (".git", "file", True), (".git", "symlink", True), (".git", "directory", False), ("a/.git", "file", True),
        (".git/config", "file", True), ("a/b/.GIT/Config", "file", True), (".git/hooks", "directory", True),
        (".git/hooks/x", "file", True), (".git/modules/m/hooks/x", "file", True), (".git/commondir", "file", True),
        (".git/worktrees/w/config.worktree", "file", True), (".git/info/attributes", "file", True),
        (".git/info", "symlink", True), (".git/modules", "symlink", True), (".git/info/exclude", "file", False),
        (".git/refs/heads/config", "file", False), (".git/objects/ab/cd", "file", False), ("config", "file", False),
        ("hooks/x", "file", False), (".github/hooks/x", "file", False),
    ],
)  # fmt: skip
def test_what_git_obeys_is_never_applied(path: str, entry: EntryKind, is_never: bool) -> None:
    assert (never(path, entry) is not None) == is_never
