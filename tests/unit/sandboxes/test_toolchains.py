"""Which of the user's interpreters and tools a folder needs, and that they work inside, at their own path."""

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest

from stockade_sandbox import Sandbox
from stockade_sandbox.policy import CopyRule, FolderRule, Policy, own_places, policy_of
from stockade_sandbox.toolchains import Toolchain, find, with_toolchains

SYSTEM_PATH, HOME = "/usr/bin:/bin", "/home/agent"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def folder(home: Path) -> Path:
    made = home / "project"
    made.mkdir()
    return made


@pytest.fixture
def system_python() -> str:
    """As python3.11."""
    return Path("/usr/bin/python3").resolve().name


def program(path: Path, says: str) -> Path:
    """A program of the user's, which prints a line and its arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho {says} "$@"\n')
    path.chmod(0o755)
    return path


def found(folder: Path, home: Path, path: str = SYSTEM_PATH, **variables: str) -> list[str]:
    return [one.name for one in find(folder, {"PATH": path, **variables}, home)]


MANAGED = (
    (".python-version", "3.12\n", ".pyenv/versions/3.12.4", "python 3.12.4 (pyenv)"),
    (".python-version", "3.12", ".local/share/uv/python/cpython-3.12.4-linux-x86_64-gnu",
     "python cpython-3.12.4-linux-x86_64-gnu (uv)"),
    (".ruby-version", "ruby-3.3\n", ".rbenv/versions/3.3.1", "ruby 3.3.1 (rbenv)"),
    (".node-version", "20", ".nodenv/versions/20.11.1", "node 20.11.1 (nodenv)"),
    (".nvmrc", "v20\n", ".nvm/versions/node/v20.11.1", "node v20.11.1 (nvm)"),
    (".node-version", "20.11.1", ".local/share/fnm/node-versions/v20.11.1/installation", "node v20.11.1 (fnm)"),
    ("package.json", '{"volta": {"node": "20.1.0"}}', ".volta/tools/image/node/20.1.0", "node 20.1.0 (volta)"),
    ("rust-toolchain.toml", '[toolchain]\nchannel = "1.80"\n', ".rustup/toolchains/1.80.1-x86_64-unknown-linux-gnu",
     "rust 1.80.1-x86_64-unknown-linux-gnu (rustup)"),
    ("rust-toolchain", "nightly\n", ".rustup/toolchains/nightly-x86_64-unknown-linux-gnu",
     "rust nightly-x86_64-unknown-linux-gnu (rustup)"),
    ("go.mod", "module x\n\ngo 1.22\n\ntoolchain go1.22.3\n", "sdk/go1.22.3", "go go1.22.3 (go)"),
    (".tool-versions", "# ours\nelixir 1.16.0\n", ".asdf/installs/elixir/1.16.0", "elixir 1.16.0 (asdf)"),
    ("mise.toml", '[tools]\nruby = ["3.3", "3.2"]\n', ".local/share/mise/installs/ruby/3.3.1", "ruby 3.3.1 (mise)"),
    (".sdkmanrc", "java=21.0.2-tem\n", ".sdkman/candidates/java/21.0.2-tem", "java 21.0.2-tem (sdkman)"),
)  # fmt: skip


@pytest.mark.parametrize(("file", "text", "install", "name"), MANAGED, ids=[row[3] for row in MANAGED])
def test_a_version_file_asks_for_it(file: str, text: str, install: str, name: str, folder: Path, home: Path) -> None:
    (home / install / "bin").mkdir(parents=True)
    assert found(folder, home) == []
    (folder / file).write_text(text)
    (one,) = find(folder, {"PATH": SYSTEM_PATH}, home)
    assert (one.name, one.mounts, one.path) == (name, (str(home / install),), (str(home / install / "bin"),))
    assert str(folder / file) in one.because


def test_the_newest_that_begins_so_part_by_part(folder: Path, home: Path) -> None:
    for version in ("3.1.9", "3.12.4", "3.12.10", "3.120.1"):
        (home / ".pyenv" / "versions" / version / "bin").mkdir(parents=True)
    for wanted, chosen in (("3.12", "3.12.10"), ("3.1", "3.1.9"), ("3.12.4", "3.12.4")):
        (folder / ".python-version").write_text(wanted)
        assert found(folder, home) == [f"python {chosen} (pyenv)"]
    (folder / ".python-version").write_text("2.7")
    assert found(folder, home) == []


@pytest.mark.parametrize("version", ["../../.ssh", "..", ".", "/etc", "", "x/../../../.ssh", "\0"])
def test_no_version_names_another_place(version: str, folder: Path, home: Path) -> None:
    """A bot may have written the file."""
    (home / ".ssh" / "bin").mkdir(parents=True)
    (home / ".pyenv" / "versions" / "3.12.4" / "bin").mkdir(parents=True)
    (home / ".asdf" / "installs" / "ruby" / "3" / "bin").mkdir(parents=True)
    (folder / ".python-version").write_text(version)
    (folder / ".tool-versions").write_text(f"ruby {version}\n{version} 3\n../../.ssh bin\n")
    (folder / "mise.toml").write_text(f"[tools]\n{json.dumps('../..')} = {json.dumps(version)}\n")
    assert found(folder, home) == []


def venv(folder: Path, base: Path, name: str = ".venv") -> Path:
    (folder / name / "bin").mkdir(parents=True)
    (folder / name / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion = 3.12.4\n")
    return folder / name


def test_a_virtual_environment_leads_to_its_python(folder: Path, home: Path) -> None:
    base = home / ".pyenv" / "versions" / "3.12.4"
    program(base / "bin" / "python3", "three")
    venv(folder, base)
    (folder / ".python-version").write_text("3.12")
    (one,) = find(folder, {"PATH": f"{home}/.pyenv/shims:{SYSTEM_PATH}"}, home)
    assert one.mounts == (str(base),)
    assert one.path == (str(folder / ".venv" / "bin"),)
    assert one.environment == {"VIRTUAL_ENV": str(folder / ".venv")}


def test_the_one_that_is_active_in_the_shell(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = home / ".pyenv" / "versions" / "3.12.4"
    program(base / "bin" / "python3", "three")
    own = venv(home, base, ".virtualenvs/p1")
    (own / "lib").mkdir()
    (own / "lib64").symlink_to("lib")
    (own / "src").mkdir()
    (folder / ".python-version").write_text("3.12")
    shell = {"PATH": f"{own}/bin:{home}/.pyenv/shims:{SYSTEM_PATH}", "VIRTUAL_ENV": str(own)}
    (one,) = find(folder, shell, home)
    assert one.mounts == (f"{own}/bin", f"{own}/lib", f"{own}/pyvenv.cfg", str(base))
    assert (one.path, one.environment) == ((f"{own}/bin",), {"VIRTUAL_ENV": str(own)})
    assert one.needed
    monkeypatch.setattr("sys.prefix", str(own))
    assert [one.needed for one in find(folder, shell, home)] == [False]  # perhaps it holds Stockade and nothing else
    venv(folder, base)
    assert [one.name for one in find(folder, shell, home)] == ["python of .venv"]


KEPT = (
    ("poetry.lock", ".cache/pypoetry/virtualenvs/demo-{}-py3.12", ""),
    ("pyproject.toml", "elsewhere/demo-{}-py3.9", "POETRY_VIRTUALENVS_PATH"),
    ("Pipfile", ".local/share/virtualenvs/project-{}", ""),
    ("Pipfile", "elsewhere/project-{}", "WORKON_HOME"),
)


@pytest.mark.parametrize(("file", "place", "variable"), KEPT, ids=[f"{file} {place}" for file, place, _ in KEPT])
def test_the_one_that_poetry_or_pipenv_keeps_for_it(
    file: str, place: str, variable: str, folder: Path, home: Path
) -> None:
    base = home / ".pyenv" / "versions" / "3.12.4"
    program(base / "bin" / "python3", "three")
    hashed = folder / "Pipfile" if file == "Pipfile" else folder
    digest = base64.urlsafe_b64encode(hashlib.sha256(str(hashed).encode()).digest()).decode()[:8]
    kept = venv(home, base, place.format(digest))
    venv(home, base, place.format("AAAAAAAA"))
    shell = {"PATH": "", variable: str(kept.parent)} if variable else {"PATH": ""}
    assert find(folder, shell, home) == ()
    (folder / file).touch()
    (one,) = find(folder, shell, home)
    assert (one.name, one.path, one.needed) == (f"python of {kept.name}", (f"{kept}/bin",), True)
    assert one.because == f"{file} is in the folder"


def test_of_those_that_poetry_keeps_the_newest_python(folder: Path, home: Path) -> None:
    (folder / "poetry.lock").touch()
    base = home / ".pyenv" / "versions" / "3.12.4"
    program(base / "bin" / "python3", "three")
    digest = base64.urlsafe_b64encode(hashlib.sha256(str(folder).encode()).digest()).decode()[:8]
    for version in ("3.9", "3.12", "3.10"):
        venv(home, base, f".cache/pypoetry/virtualenvs/demo-{digest}-py{version}")
    assert found(folder, home) == [f"python of demo-{digest}-py3.12"]


@pytest.mark.parametrize("value", ["", ".", "project", "/", "/nowhere", "HOME", "HOME/.ssh", "HOME/.."])
def test_what_is_none_is_not_active(value: str, folder: Path, home: Path) -> None:
    (home / ".ssh").mkdir()
    for place in (home, home / ".ssh"):
        (place / "pyvenv.cfg").write_text(f"home = {home}/bin\n")
    assert found(folder, home, VIRTUAL_ENV=value.replace("HOME", str(home))) == []


def test_of_another_prefix_its_programs_and_libraries_only(folder: Path, home: Path) -> None:
    prefix = home / "python"
    program(prefix / "bin" / "python3", "three")
    (prefix / "lib" / "python3.12").mkdir(parents=True)
    (prefix / "lib" / "python3.12" / "os.py").touch()
    (prefix / "share" / "keyrings").mkdir(parents=True)
    venv(folder, prefix)
    (one,) = find(folder, {}, home)
    assert one.mounts == (str(prefix / "bin"), str(prefix / "lib"))


@pytest.mark.parametrize("place", [".ssh", ".", "..", ".local", ".pyenv", ".pyenv/versions"])
def test_no_virtual_environment_leads_elsewhere(place: str, folder: Path, home: Path) -> None:
    (home / ".ssh" / "bin").mkdir(parents=True)
    (home / ".pyenv" / "versions" / "3.12.4" / "bin").mkdir(parents=True)
    (home / ".local" / "bin").mkdir(parents=True)
    (home / "bin").mkdir()
    venv(folder, home / place)
    assert [one.mounts for one in find(folder, {"PATH": ""}, home)] in ([], [()])


def test_what_the_path_leads_to(folder: Path, home: Path, tmp_path: Path) -> None:
    conda = tmp_path / "miniforge" / "envs" / "data"
    (conda / "conda-meta").mkdir(parents=True)
    (conda / "bin").mkdir()
    (home / ".pyenv" / "shims").mkdir(parents=True)
    (home / ".pyenv" / "versions" / "3.11.7" / "bin").mkdir(parents=True)
    (home / ".pyenv" / "version").write_text("3.11.7\n")
    (home / ".rustup" / "toolchains" / "stable-x86_64" / "bin").mkdir(parents=True)
    (home / ".rustup" / "settings.toml").write_text('default_toolchain = "stable-x86_64"\n')
    (home / ".cargo" / "bin").mkdir(parents=True)
    (home / "bin").mkdir()
    path = f"{conda}/bin:{home}/.pyenv/shims:{home}/.cargo/bin:{home}/bin:/nowhere/bin:{SYSTEM_PATH}"
    own = f"programs in {home}/.cargo/bin"
    assert found(folder, home, path) == ["data", "python 3.11.7 (pyenv)", "rust stable-x86_64 (rustup)", own]


def test_programs_that_go_and_cargo_install(folder: Path, home: Path) -> None:
    program(home / "go" / "bin" / "lint", "of go")
    program(home / "elsewhere" / "bin" / "nextest", "of cargo")
    (home / "go" / "secret").touch()
    where = {"PATH": f"{home}/go/bin:{home}/elsewhere/bin", "CARGO_HOME": f"{home}/elsewhere"}
    both = find(folder, where, home)
    assert [one.mounts for one in both] == [(f"{home}/go/bin",), (f"{home}/elsewhere/bin",)]
    with Sandbox(policy=with_toolchains(policy_of(folder, []), both, SYSTEM_PATH, HOME)) as box:
        assert box.exec(shell=f"lint; nextest; ls {home}/go").text == "of go\nof cargo\nbin\n"


def test_programs_that_links_on_the_path_lead_to(folder: Path, home: Path) -> None:
    """As pipx and npm install them: nothing else of ~/.local/bin is seen, nor of what lies beside the programs."""
    entry, tool = home / ".local" / "bin", home / ".local" / "pipx" / "venvs" / "tox"
    program(entry / "mine", "a script with a password")
    (tool / "bin").mkdir(parents=True)
    (tool / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tool / "bin" / "python").symlink_to("/usr/bin/python3")
    (tool / "bin" / "tox").write_text(f"#!{tool}/bin/python\nimport sys; print(sys.prefix)\n")
    (tool / "bin" / "tox").chmod(0o755)
    (tool / "metadata.json").write_text("a password")
    package = program(home / ".local" / "lib" / "node_modules" / "tsc" / "bin" / "tsc.js", "tsc")
    (entry / "tox").symlink_to(tool / "bin" / "tox")
    (entry / "tsc").symlink_to(package)
    path = f"{entry}:{SYSTEM_PATH}"
    (one,) = find(folder, {"PATH": path}, home)
    links = {f"{entry}/tox": f"{tool}/bin/tox", f"{entry}/tsc": str(package)}
    assert (one.links, one.path, one.needed) == (links, (str(entry),), False)
    with Sandbox(policy=with_toolchains(policy_of(folder, []), [one], SYSTEM_PATH, HOME)) as box:
        assert box.exec(shell=f"tox && tsc now && ls {entry} {tool}; which python").text == (
            f"{tool}\ntsc now\n{entry}:\ntox\ntsc\n\n{tool}:\nbin\npyvenv.cfg\n"
        )


def test_no_programs_lead_to_the_whole_home(folder: Path, home: Path, system_python: str) -> None:
    for place in (home / "bin" / "mine", home / "entry" / "other", home / "work" / "bin" / "deep"):
        program(place, "a script with a password")
    (home / "lib").mkdir()
    (home / "lib" / "node_modules").symlink_to(home)
    (home / "entry" / "mine").symlink_to(home / "bin" / "mine")
    (home / "entry" / "deep").symlink_to(home / "work" / "bin" / "deep")
    (home / ".local" / "lib" / system_python).mkdir(parents=True)
    (home / ".local" / "lib" / system_python / "site-packages").symlink_to(home)
    assert find(folder, {"PATH": f"{home}/bin:{home}/entry", "GOPATH": str(home)}, home) == ()


def test_a_link_that_a_bot_made_in_the_folder_ends_no_run(folder: Path, home: Path) -> None:
    entry = folder / ".venv" / "bin"
    entry.mkdir(parents=True)
    (entry / "uv").symlink_to(program(home / "tools" / "uv", "uv"))
    (folder / "uv.lock").touch()
    chosen = find(folder, {"PATH": f"{entry}:{SYSTEM_PATH}"}, home)
    assert [one.mounts for one in chosen] == [(f"{home}/tools/uv",)]
    assert with_toolchains(policy_of(folder, []), chosen, SYSTEM_PATH, HOME).links == {str(folder): "/workspace"}


@pytest.mark.parametrize("place", ["project/bin/it", "bin/it", ".ssh/bin/it", "../bin/it", "nowhere", "entry/it"])
def test_a_link_on_the_path_leads_nowhere_else(place: str, folder: Path, home: Path) -> None:
    (home / "entry").mkdir()
    if place not in ("nowhere", "entry/it"):
        prefix = program(home / place, "it").parent.parent
        (prefix / "pyvenv.cfg").write_text(f"home = {home}/bin\n")
    (home / "entry" / "it").symlink_to(home / place)
    assert find(folder, {"PATH": f"{home}/entry"}, home) == ()


def test_what_pip_installed_for_the_user(folder: Path, home: Path, system_python: str) -> None:
    """The packages of the system's Python in the home, and of ~/.local/bin the programs that pip put there."""
    site = home / ".local" / "lib" / system_python / "site-packages"
    (site / "six-1.dist-info").mkdir(parents=True)
    (site / "six.py").write_text("print('six of the user')\n")
    (site / "six-1.dist-info" / "RECORD").write_text("../../../bin/six,,\n../../../bin/gone,,\nsix.py,,\n")
    program(home / ".local" / "bin" / "six", "its program")
    program(home / ".local" / "bin" / "mine", "a script with a password")
    both = find(folder, {"PATH": SYSTEM_PATH}, home)
    assert [one.mounts for one in both] == [(str(site),), (f"{home}/.local/bin/six",)]
    with Sandbox(policy=with_toolchains(policy_of(folder, []), both, SYSTEM_PATH, HOME)) as box:
        look = f"six; ls {home}/.local/bin; /usr/bin/python3 -c 'import six'"
        spoil = f"touch ~/.local/lib/{system_python}/site-packages/x"
        assert box.exec(shell=f"{look}; {spoil}").text == "its program\nsix\nsix of the user\n"
    assert not (site / "x").exists()
    assert find(folder, {"PATH": SYSTEM_PATH, "PYTHONUSERBASE": ".local"}, home) == both
    uv = program(home / ".local" / "bin" / "uv", "uv beside them")
    (folder / "uv.lock").touch()
    assert found(folder, home, f"{uv.parent}:{SYSTEM_PATH}") == [*(one.name for one in both), "uv"]
    venv(folder, home / ".pyenv" / "versions" / "3.12.4")
    (home / ".pyenv" / "versions" / "3.12.4" / "bin").mkdir(parents=True)
    assert [one.name for one in find(folder, {"PATH": SYSTEM_PATH}, home)] == ["python of .venv"]


def test_a_manager_where_its_variable_says(folder: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "own" / "versions" / "3.12.4" / "bin").mkdir(parents=True)
    (folder / ".python-version").write_text("3.12.4")
    assert found(folder, home, PYENV_ROOT=str(tmp_path / "own")) == ["python 3.12.4 (pyenv)"]


def test_the_nearest_version_file_counts_and_none_of_the_home(folder: Path, home: Path) -> None:
    for version in ("3.11.7", "3.12.4"):
        (home / ".pyenv" / "versions" / version / "bin").mkdir(parents=True)
    (home / ".python-version").write_text("3.11.7")
    inner = folder / "inner"
    inner.mkdir()
    assert found(inner, home) == []
    (folder / ".python-version").write_text("3.11.7")
    (inner / ".python-version").write_text("3.12.4")
    assert found(inner, home) == ["python 3.12.4 (pyenv)"]


@pytest.mark.parametrize(
    "text", ["{", "[tools", "\xff\xfe", "[]", '{"volta": 3}', "[tools]\npython = true\n", "x" * 100_000]
)
def test_broken_files_ask_for_nothing(text: str, folder: Path, home: Path) -> None:
    (home / ".pyenv" / "versions" / "3.12.4" / "bin").mkdir(parents=True)
    for name in ("package.json", "mise.toml", "rust-toolchain.toml", "go.mod", ".tool-versions", ".sdkmanrc"):
        (folder / name).write_text(text)
    (folder / ".nvmrc").mkdir()
    os.mkfifo(folder / ".go-version")
    assert found(folder, home) == []


def test_one_mount_inside_another_is_one(folder: Path) -> None:
    first = Toolchain("a", "", ("/opt/a", "/opt/a/b"), ("/opt/a/bin",))
    chosen = (first, Toolchain("b", "", ("/opt/ab",), ("/opt/b",)))
    policy = with_toolchains(policy_of(folder, []), chosen, SYSTEM_PATH, HOME)
    assert [(rule.host, rule.inside, rule.mode) for rule in policy.lent] == [
        ("/opt/a", "/opt/a", "ro"),
        ("/opt/ab", "/opt/ab", "ro"),
    ]
    assert policy.environment == {"PATH": f"/opt/a/bin:/opt/b:{SYSTEM_PATH}"}
    assert policy.links == {str(folder): "/workspace"}
    linked = Toolchain("c", "", (), ("/opt/a/bin",), links={"/opt/a/bin/x": "/y", "/opt/ab": "/y", "/opt/c": "/y"})
    policy = with_toolchains(policy_of(folder, []), (*chosen, linked), SYSTEM_PATH, HOME)
    assert policy.links == {str(folder): "/workspace", "/opt/c": "/y"}
    assert with_toolchains(policy_of(folder, []), (), SYSTEM_PATH, HOME) == policy_of(folder, [])


def test_folders_are_found_at_their_own_places_where_nothing_else_is() -> None:
    rules = (("/a", "/workspace"), ("/a/b", "/folders/b"), ("/c", "/c"), ("/d/e", "/folders/e"), ("/f", "/f/g"))
    folders = tuple(FolderRule(host=host, mode="ro", inside=inside) for host, inside in rules)
    copies = (CopyRule(host="/x", inside="/d"),)
    assert own_places(Policy(folders=folders, copies=copies)) == {"/a": "/workspace"}


def test_a_project_works_inside_as_it_does_outside(folder: Path, home: Path) -> None:
    """Its environment's programs name the folder of the host in their first line, and link to a Python in the home."""
    base = home / ".pyenv" / "versions" / "3.12.4"
    program(base / "bin" / "python3", "three")
    (home / ".pyenv" / "versions" / "secret").write_text("x")
    venv(folder, base)
    (folder / ".venv" / "bin" / "python3").symlink_to(base / "bin" / "python3")
    (folder / ".venv" / "bin" / "pytest").write_text(f"#!{folder}/.venv/bin/python3\n")
    (folder / ".venv" / "bin" / "pytest").chmod(0o755)
    policy = with_toolchains(policy_of(folder, []), find(folder, {"PATH": SYSTEM_PATH}, home), SYSTEM_PATH, HOME)
    look = f"ls {home} {home}/.pyenv {home}/.pyenv/versions; touch {base}/new || echo refused; touch here; ls {folder}"
    with Sandbox(policy=policy) as box:
        assert box.exec(["pytest", "-q"]).text == f"three {folder}/.venv/bin/pytest -q\n"
        words = box.exec(shell=look).text.split()
    assert "secret" not in words
    assert {"refused", "here", "3.12.4"} <= set(words)
    assert not (folder / "here").exists()
    assert not (base / "new").exists()


CACHED = {".cache/pip": "setup.py", ".cache/uv": "uv.lock", ".npm/_cacache": "package.json",
          ".cache/node/corepack": "yarn.lock", ".local/share/pnpm/store": "pnpm-lock.yaml",
          ".bun/install/cache": "bun.lock", ".cache/deno": "deno.json", ".cargo/registry": "Cargo.toml",
          "go/pkg/mod": "go.mod", ".cache/go-build": "go.mod",
          ".cache/ms-playwright": "playwright.config.ts", ".cache/yarn": "yarn.lock", ".yarn/berry/cache": "yarn.lock",
          ".m2/repository": "pom.xml", ".m2/wrapper/dists": "pom.xml", ".gradle/caches": "build.gradle.kts",
          ".gradle/wrapper/dists": "build.gradle.kts", ".nuget/packages": "Shop.sln",
          ".cache/composer": "composer.json", ".local/share/gem/ruby": "Gemfile"}  # fmt: skip


def test_caches_of_package_managers_are_seen_where_the_folder_wants_them(folder: Path, home: Path) -> None:
    for place in CACHED:
        (home / place).mkdir(parents=True)
    assert find(folder, {"PATH": SYSTEM_PATH}, home) == ()
    for file in CACHED.values():
        (folder / file).write_text("")
    caches = find(folder, {"PATH": SYSTEM_PATH}, home)
    assert {one.below_home: one.mounts for one in caches} == {place: (str(home / place),) for place in CACHED}
    policy = with_toolchains(policy_of(folder, []), caches, SYSTEM_PATH, HOME)
    assert [(rule.inside, rule.mode) for rule in policy.lent] == [(f"{HOME}/{place}", "overlay") for place in CACHED]
    assert policy.links == {}
    assert policy.environment == {}


def test_a_cache_is_where_its_variable_says_and_never_the_home(folder: Path, home: Path) -> None:
    (folder / "Cargo.toml").write_text("")
    (folder / "uv.lock").write_text("")
    elsewhere = home.parent / "elsewhere"
    (elsewhere / "registry").mkdir(parents=True)
    uv = program(home / "bin" / "uv", "uv")
    where = {"PATH": f"{home}/bin:{SYSTEM_PATH}", "CARGO_HOME": str(elsewhere), "UV_CACHE_DIR": str(home.parent)}
    found = find(folder, where, home)
    assert [(one.name, one.mounts, one.path) for one in found] == [
        ("uv", (str(uv),), (str(uv.parent),)),
        ("cache of cargo", (str(elsewhere / "registry"),), ()),
    ]


@pytest.mark.parametrize(("name", "file"), [("uv", "uv.lock"), ("bun", "bun.lockb"), ("deno", "deno.jsonc")])
def test_a_manager_that_is_one_file_on_the_path(name: str, file: str, folder: Path, home: Path) -> None:
    own = program(home / f".{name}" / "bin" / name, name)
    (folder / file).touch()
    (one,) = find(folder, {"PATH": f"{own.parent}:{SYSTEM_PATH}"}, home)
    assert (one.name, one.mounts, one.path, one.needed) == (name, (str(own),), (str(own.parent),), False)


def test_what_is_written_to_a_cache_is_thrown_away(folder: Path, home: Path) -> None:
    cache = home / ".npm" / "_cacache"
    (cache / "content").mkdir(parents=True)
    (cache / "content" / "one").write_text("fetched")
    (home / ".npm" / "token").write_text("secret")
    (folder / "package.json").write_text("{}")
    caches = find(folder, {"PATH": SYSTEM_PATH}, home)
    policy = with_toolchains(policy_of(folder, []), caches, SYSTEM_PATH, HOME)
    look, spoil = (
        "cd ~/.npm && cat _cacache/content/one && ls",
        "echo new > _cacache/content/one && rm -r _cacache/content",
    )
    with Sandbox(policy=policy) as box:
        done = box.exec(shell=f"{look} && {spoil} && touch log && ls _cacache | wc -l")
        assert done.text == "fetched_cacache\n0\n"
    assert [path.name for path in home.rglob("*") if path.is_file()] == ["package.json", "token", "one"]
    assert (cache / "content" / "one").read_text() == "fetched"
