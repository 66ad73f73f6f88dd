"""From flags to policy and budget; what cannot be understood is the person's mistake, named."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from stockade.bots.spec import BotSpec
from stockade.core.budget import Budget
from stockade.core.errors import UsageError
from stockade.loop.run_context import Bot
from stockade.runtime.bots import bot_of, driver_of, find_bot, with_defaults
from stockade.runtime.factory import check_task
from stockade.runtime.models import pick_protocol
from stockade.runtime.policy import make_policy
from stockade.runtime.records import new_run_id, open_store
from stockade.runtime.spec import RunSpec, make_budget
from stockade_sandbox.policy import Limits
from tests.unit.loop.helpers import started


def options(**given: object) -> RunSpec:
    return RunSpec.model_validate({"task": "x", **given})


def test_the_first_folder_is_the_workspace() -> None:
    policy = make_policy(options(folder=("/a/one:ro", "/b/two", "/c/three:rw")), "overlay")
    assert [(rule.host, rule.mode, rule.inside) for rule in policy.folders] == [
        ("/a/one", "ro", "/workspace"),
        ("/b/two", "overlay", "/folders/two"),
        ("/c/three", "rw", "/folders/three"),
    ]
    assert policy.workdir == "/workspace"


def test_a_reading_bot_reads() -> None:
    spec = find_bot("reading")
    assert make_policy(options(folder=("/a",)), spec.folder_mode).folders[0].mode == "ro"


def test_limits_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "from here")
    usual = {"memory_bytes": 7 << 30, "processes": 900, "disk_bytes": 6 << 30}
    monkeypatch.setattr("stockade.runtime.policy.usual_limits", lambda _: usual)
    policy = make_policy(
        options(memory="512M", disk="64M", processes=9, command_timeout=3, env=("A=1=2", "GIVEN")), "overlay"
    )
    assert (policy.limits.memory_bytes, policy.limits.processes) == (512 << 20, 9)
    assert (policy.limits.command_timeout_s, policy.limits.longest_command_s) == (3, 3)
    here, elsewhere = make_policy(options(), "overlay"), make_policy(options(sandbox="https://box:1"), "overlay")
    assert here.limits == Limits(memory_bytes=7 << 30, processes=900, disk_bytes=6 << 30, file_bytes=3 << 30)
    assert elsewhere.limits == Limits()
    assert (policy.limits.disk_bytes, policy.limits.file_bytes) == (64 << 20, 32 << 20)
    assert policy.environment == {"A": "1=2", "GIVEN": "from here"}


@pytest.mark.parametrize(("bot", "streams"), [("writing", "one"), ("shell", "separate"), ("coder", "separate")])
def test_a_commands_streams_are_one_but_for_the_bots_that_want_them_apart(bot: str, streams: str) -> None:
    assert make_policy(with_defaults(options(), find_bot(bot)), "rw").streams == streams
    for word in ("one", "separate"):
        assert make_policy(with_defaults(options(streams=word), find_bot(bot)), "rw").streams == word
    with pytest.raises(ValidationError):
        options(streams="merged")


def test_network() -> None:
    assert make_policy(options(net="none"), "ro").network.mode == "none"
    network = make_policy(options(net="pypi.org, files.pythonhosted.org:443"), "ro").network
    assert (network.mode, network.hosts) == ("allow", ("pypi.org", "files.pythonhosted.org:443"))


@pytest.mark.parametrize(
    "given",
    [
        {"folder": ("",)},
        {"folder": (":ro",)},
        {"folder": ("/a/x", "/b/y", "/c/y")},
        {"env": ("1A=x",)},
        {"env": ("NOT_SET_ANYWHERE",)},
        {"env": ("=x",)},
        {"copy": ("/nowhere/at/all",)},
    ],
)
def test_what_cannot_be_understood(given: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        make_policy(options(**given), "overlay")
    assert caught.value.message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"net": "some"}, "'some' is not understood"),
        ({"net": ""}, "'' is not understood"),
        ({"net": "pypi.org,opne"}, "'opne' is not understood"),
        ({"net": "allow="}, "write the hosts alone: HOST"),
        ({"net": "allow=pypi.org"}, "write the hosts alone: pypi.org"),
        ({"memory": "much"}, "not a size: 'much'"),
        ({"memory": "1M"}, "1M is 1048576 bytes: at least 8M"),
        ({"disk": "much"}, "not a size: 'much'"),
        ({"processes": 7}, "7 is too few: at least 8"),
    ],
)
def test_a_value_that_is_none_is_refused_where_it_is_read(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        options(**given)


def test_an_env_that_is_none_comes_with_a_way_out() -> None:
    with pytest.raises(UsageError, match="'A B' is not the name of a variable") as caught:
        make_policy(options(env=("A B=1",)), "overlay")
    assert (caught.value.hint or "").startswith("write NAME=VALUE")


def test_a_mode_that_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with pytest.raises(UsageError, match="demo:zz': there is no mode 'zz'") as caught:
        make_policy(options(folder=(f"{tmp_path}/demo:zz",)), "overlay")
    assert caught.value.hint == "the modes are ro, overlay and rw"
    (tmp_path / "demo:zz").mkdir()
    (rule,) = make_policy(options(folder=(f"{tmp_path}/demo:zz",)), "overlay").folders
    assert (rule.host, rule.mode) == (f"{tmp_path}/demo:zz", "overlay")


def test_a_folder_given_twice(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "link").symlink_to("demo")
    for again in ("demo", "demo/:ro", "link"):
        with pytest.raises(UsageError, match="is given twice"):
            make_policy(options(folder=(f"{tmp_path}/demo", f"{tmp_path}/{again}")), "overlay")


def test_flags_replace_the_bots_budget_one_by_one() -> None:
    assert make_budget(options(max_turns=3), Budget(timeout_s=5)) == Budget(max_turns=3, timeout_s=5)
    assert make_budget(options(timeout=0), Budget()).timeout_s == 0


@pytest.mark.parametrize("task", ["", "  \n", "x" * 1_000_001])
def test_tasks_that_are_none(task: str) -> None:
    with pytest.raises(UsageError):
        check_task(task)


def test_control_characters_are_taken_out_of_a_task() -> None:
    assert check_task("do\x1b[2J this\x00\r\nand\tthat\x7f") == "do[2J this\nand\tthat"


def test_run_ids_differ_and_sort_by_time() -> None:
    made = {new_run_id() for _ in range(50)}
    assert len(made) == 50
    assert all(len(name) == len("20261122-020648-k3f9xw") for name in made)


def test_names_that_do_not_exist() -> None:
    for call in (
        lambda: find_bot("nobody"),
        lambda: pick_protocol("morse"),
        lambda: open_store("postgresql://x?nonsense=1"),
    ):
        with pytest.raises(UsageError):
            call()


class _Twice(Bot):
    """A program's own."""


def test_who_drives_a_run_is_on_record_and_drives_it_again() -> None:
    renamed = find_bot("shell").model_copy(update={"name": "fred"})
    assert [driver_of(spec) for spec in (find_bot("writing"), renamed)] == ["", "shell"]
    again = bot_of(started().model_copy(update={"bot": "fred", "driver": driver_of(renamed)}))
    assert type(again) is type(renamed.bot)
    assert type(bot_of(started())) is Bot


def test_a_run_that_a_programs_own_bot_drives_goes_on_only_there() -> None:
    driver = driver_of(BotSpec(name="fred", summary="", prompt="You are one.", bot=_Twice()))
    assert driver == "python:_Twice"
    with pytest.raises(UsageError, match="_Twice, is a part of the Python program that began the run"):
        bot_of(started().model_copy(update={"driver": driver}))
