"""Presets of programs that are wrapped: ours hold, and what is wrong with a user's own is told in one line."""

from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.plugins.wrap.bot import Wrapped
from stockade.plugins.wrap.preset import seen
from stockade.runtime import bots, presets
from stockade.runtime.bots import with_defaults
from stockade.runtime.spec import RunSpec
from stockade_sandbox.policy import FolderRule, Policy

OURS = {"aider": "aider", "claude": "claude-code", "codex": "codex", "gemini": "gemini", "goose": "goose",
        "opencode": "opencode", "pi": "pi", "qwen": "qwen", "copilot": "copilot", "vibe": "vibe"}  # fmt: skip


@pytest.mark.parametrize(("program", "bot"), OURS.items())
def test_ours_are_bots_with_their_network_and_limits(program: str, bot: str) -> None:
    spec = bots.find_bot(bot)
    assert isinstance(spec.bot, Wrapped)
    preset = spec.bot.preset
    assert presets.of_program(f"/some/where/{program}") == preset
    found = with_defaults(RunSpec(task="x"), spec)
    assert found.net == ",".join(preset.hosts)
    assert found.memory == preset.settings["memory"]
    assert with_defaults(RunSpec(task="x", net="none"), spec).net == "none"
    arguments, stdin = preset.headless("-do {x}", again=False, turns=0)
    assert (b"-do {x}" in stdin) != any("-do {x}" in one for one in arguments)
    assert all("@" in one for one in preset.credentials)


@pytest.fixture
def stage_home(_own_home: Path) -> Path:
    return _own_home


def own(home: Path, text: str | bytes, name: str = "mine") -> Path:
    place = home / ".config" / "stockade" / "presets"
    place.mkdir(parents=True, exist_ok=True)
    (path := place / f"{name}.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hostss = []", "there is no key 'hostss'"),
        ("hosts = 3", "hosts"),
        ('prompt = "-p"', "prompt"),
        ('login = ["../.ssh/id_rsa"]', "no path below the home"),
        ('login = ["/etc/shadow"]', "no path below the home"),
        ("environment = {A = 1}", "environment"),
        ("a" * 70_000, "larger than"),
        (b"\xff\xfe", "not UTF-8"),
        ("x = [", "not TOML"),
        ("a." * 2_000 + "b = 1", "not TOML"),
    ],
)
def test_a_broken_one_is_told_in_a_line_and_touches_no_other(stage_home: Path, text: str | bytes, words: str) -> None:
    own(stage_home, text)
    with pytest.raises(UsageError) as caught:
        presets.of_program("mine")
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    found, broken = bots.list_bots()
    assert {"writing", *OURS.values()} <= {one.name for one in found}
    assert [error.message for error in broken] == [caught.value.message]


@pytest.mark.parametrize(("key", "hint"), [("logn", "did you mean login?"), ("qqq", "docs/wrap.md")])
def test_the_nearest_key_is_offered(stage_home: Path, key: str, hint: str) -> None:
    own(stage_home, f"{key} = []")
    with pytest.raises(UsageError) as caught:
        presets.of_program("mine")
    assert caught.value.hint == hint


def test_a_setting_that_is_none_is_told_by_its_name(stage_home: Path) -> None:
    own(stage_home, 'prompt = ["-p"]\n[settings]\nmemroy = "2G"')
    with pytest.raises(UsageError, match="memroy"):
        with_defaults(RunSpec(task="x"), bots.find_bot("mine"))


def test_ones_own_counts_before_ours(stage_home: Path) -> None:
    own(stage_home, 'hosts = ["gateway.example.org"]', name="claude")
    assert presets.of_program("claude").hosts == ("gateway.example.org",)


def test_what_runs_it_may_have_been_unpacked_anywhere(tmp_path: Path) -> None:
    """And not the one of the system is what is found inside, nor what pip and pipx installed for the user."""
    (tmp_path / "home" / ".local" / "lib" / Path("/usr/bin/python3").resolve().name / "site-packages").mkdir(
        parents=True
    )
    (tmp_path / "tox" / "bin").mkdir(parents=True)
    (tmp_path / "tox" / "bin" / "tox").touch()
    (tmp_path / "tox" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tools := tmp_path / "tools").mkdir()
    (tools / "node-24").write_bytes(b"\x7fELF")
    (tools / "node-24").chmod(0o755)
    (tools / "node").symlink_to("node-24")
    (tools / "tox").symlink_to(tmp_path / "tox" / "bin" / "tox")
    (tmp_path / "agent").write_text("#!/usr/bin/env node\n")
    (tmp_path / "agent").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{tools}", "HOME": str(tmp_path / "home")}
    _, policy = seen(Policy(), "agent", "/usr/bin", environment)
    assert {rule.inside: rule.host for rule in policy.lent} == {
        str(tmp_path / "agent"): str(tmp_path / "agent"),
        str(tools / "node"): str(tools / "node-24"),
    }
    assert policy.environment["PATH"].split(":") == [str(tmp_path), str(tools), "/usr/bin"]


def test_what_is_seen_of_a_program(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "node_modules" / "@some" / "agent"
    package.mkdir(parents=True)
    (package / "cli.js").write_text("#!/usr/bin/env node\n")
    (package / "cli.js").chmod(0o755)
    (programs := tmp_path / "bin").mkdir()
    (programs / "agent").symlink_to(package / "cli.js")
    environment = {"PATH": str(programs), "HOME": str(tmp_path / "home")}
    started, policy = seen(Policy(), "agent", "/usr/bin", environment)
    assert started == str(package / "cli.js")
    assert [rule.host for rule in policy.lent] == [str(tmp_path / "lib" / "node_modules")]
    assert {rule.mode for rule in policy.lent} == {"ro"}
    assert policy.environment["PATH"].endswith(":/usr/bin")
    assert seen(Policy(), "no-such", "/usr/bin", environment) == ("no-such", Policy())
    rule = FolderRule(host=str(tmp_path), inside="/workspace")
    own_folder = Policy(folders=(rule,))
    assert seen(own_folder, str(tmp_path / "run.sh"), "", environment) == ("/workspace/run.sh", own_folder)
    with pytest.raises(UsageError, match="your whole home"):
        seen(Policy(), "agent", "/usr/bin", {**environment, "HOME": str(package)})
