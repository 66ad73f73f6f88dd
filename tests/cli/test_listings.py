"""`doctor`, `model` and `bots`: what they say, for people and as JSON."""

from tests.cli.conftest import Stage


def test_the_doctor_finds_the_default_sandbox_safe_here(stage: Stage) -> None:
    ended = stage.call("doctor", "--json")
    assert ended.status == 0, ended.out
    required = [finding["held"] for finding in ended.events if finding["required"]]
    assert required
    assert all(required)
    tried = [found for found in ended.events if found["name"].startswith("escape: ") and found["held"]]
    assert len([found for found in tried if found["backend"] == "bubblewrap"]) >= 20
    assert {found["backend"] for found in ended.events} == {None, "bubblewrap", "docker", "podman", "gvisor"}


def test_the_doctor_for_people(stage: Stage) -> None:
    ended = stage.call("doctor")
    assert ended.out.splitlines()[-1] == "ok: the default sandbox works here"
    header = next(line.split() for line in ended.out.splitlines() if line.startswith("tried in each sandbox"))
    assert header[4:] == ["bubblewrap", "docker", "gvisor", "podman"]
    assert all(len(line) <= 80 for line in ended.out.splitlines() if line.startswith(("tried", "escape", "limit")))
    assert "\x1b" not in ended.out


def test_models_that_are_here_and_that_can_be_fetched(stage: Stage) -> None:
    rows = {row["name"]: row for row in stage.call("model", "list", "--json").events}
    assert rows["embedded/smollm2"]["licence"] == "Apache-2.0"
    assert rows["embedded/qwen2.5-coder-1.5b"]["here"] is False
    table = stage.call("model", "list").out
    assert "embedded/smollm2" in table
    assert "98.4 MB" in table
    info = stage.call("model", "info", "embedded/smollm2").out
    assert "licence      Apache-2.0\n" in info


def test_bots_with_their_permissions(stage: Stage) -> None:
    out = stage.call("bots").out
    assert "writing\n" in out
    assert "folder: ro" in out
    assert {row["name"]: row["folder_mode"] for row in stage.call("bots", "--json").events}["reading"] == "ro"
