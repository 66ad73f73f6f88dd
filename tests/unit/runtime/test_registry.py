"""Parts of other packages: found by name, broken ones told with the package's name, and the others left alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import UsageError
from stockade.runtime import registry
from stockade.runtime.bots import find_bot, list_bots
from stockade.runtime.hooks import _made, place_of
from stockade.runtime.models import is_ours, open_model, pick_protocol
from stockade.runtime.sandboxes import is_far, is_tried, open_sandbox, sweep_backends
from stockade.runtime.tools import plan_tools
from stockade.testing.conformance.runs import FIRST
from stockade_sandbox.policy import Policy

MODULE = """
from stockade.testing import ScriptedModel
BOT = NUMBER = 7
def model(name, context): return ScriptedModel([f"{context.provider} {name}"])
def none(*_): return None
def raises(*_): raise RuntimeError("no licence")
from stockade_sandbox.port import Backend
OPEN = Backend(none, none, sealed=False)
SWEPT = Backend(none, none, lambda: ["box 7"])
def far(address): return Backend(none, none, far=True)
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with entry points where Python finds it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "parts_for_tests.py").write_text(MODULE)

    def put(name: str, **groups: dict[str, str]) -> None:
        about = tmp_path / f"{name}-1.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        lines = []
        for group, points in groups.items():
            owner = "stockade_sandbox" if group == "backends" else "stockade"
            lines += [f"[{owner}.{group}]", *(f"{key} = parts_for_tests:{value}" for key, value in points.items())]
        (about / "entry_points.txt").write_text("\n".join(lines))
        registry._installed.cache_clear()

    yield put
    registry._installed.cache_clear()


def test_a_provider_of_another_package_is_a_provider(install: Install) -> None:
    install("acme", models={"acme": "model"})
    model, name, note = anyio.run(open_model, "acme/big/one")
    assert (model.info.name, name, note) == ("script", "acme/big/one", None)
    assert registry.names("stockade.models")[-1] == "acme"
    assert (is_ours("acme/big"), is_ours("openai/x")) == (False, True)


def test_what_is_asked_of_a_backend_is_its_own_word(install: Install) -> None:
    """Not its name: a stranger's is tried by the doctor, swept, and named by an approval as ours are."""
    install("acme", backends={"open": "OPEN", "swept": "SWEPT", "far": "far", "broken": "raises"})
    names = ("open", "swept", "far", "broken", "bubblewrap", "docker", "gvisor", "unconfined", "remote")
    assert [name for name in names if is_tried(name)] == ["swept", "docker", "gvisor"]
    assert sweep_backends(("open", "swept")) == ["box 7"]
    assert [name for name in ("swept", "far=a:1", "https://127.0.0.1:1", "auto", "an object") if is_far(name)] == [
        "far=a:1",
        "https://127.0.0.1:1",
    ]
    started = FIRST.model_copy(update={"policy": Policy()})
    approved = [place_of(started.model_copy(update={"sandbox": name})) for name in ("swept", "open", "far=a:1")]
    assert approved == [(), ("open",), ("far=a:1",)]


def test_what_is_broken_names_its_package_and_leaves_the_rest_alone(install: Install) -> None:
    parts = {"broken": "raises", "gone": "Missing", "none": "none", "number": "NUMBER"}
    install("bad", models=parts, answers=parts, tools=parts, hooks=parts, bots=parts, backends=parts)
    asked: dict[str, Callable[[str], object]] = {
        "model provider": lambda name: anyio.run(open_model, f"{name}/x"),
        "answer protocol": pick_protocol,
        "tool": lambda name: plan_tools([name], Policy()),
        "hook": _made,
        "bot": find_bot,
        "sandbox": lambda name: open_sandbox(Policy(), name, Path("/nonexistent")),
    }
    for kind, ask in asked.items():
        words = f"the {kind} 'gone' of parts_for_tests:Missing cannot be made: AttributeError: .*package bad 1.5"
        with pytest.raises(UsageError, match=words):
            ask("gone")
    for kind, name in (("answer protocol", "none"), ("hook", "none"), ("sandbox", "none"), ("sandbox", "number"),
                       ("bot", "number"), ("tool", "number"), ("model provider", "none")):  # fmt: skip
        with pytest.raises(UsageError, match=rf"the {kind} '{name}' .*package bad 1.5"):
            asked[kind](name)
    for kind in ("hook", "model provider", "answer protocol", "sandbox"):
        with pytest.raises(UsageError, match=rf"the {kind} 'broken' .* no licence .*package bad 1.5"):
            asked[kind]("broken")
    specs, errors = list_bots()
    assert "writing" in {spec.name for spec in specs}
    assert len(errors) == len(parts)
    assert pick_protocol("json").name == "json"


def test_a_name_of_two_packages_is_refused_and_both_are_named(install: Install) -> None:
    install("one", models={"twice": "model", "openai": "model"})
    install("two", models={"twice": "model"})
    with pytest.raises(UsageError, match=r"two packages have a model provider 'twice': one 1.5 and two 1.5"):
        anyio.run(open_model, "twice/x")
    with pytest.raises(UsageError, match=r"a model provider 'openai': stockade \S+ and one 1.5") as caught:
        anyio.run(open_model, "openai/x")
    assert caught.value.hint == "pip uninstall one"
    assert not is_ours("openai/x")
    assert anyio.run(open_model, "scripted/nowhere")[1] == "scripted/nowhere"


@pytest.mark.parametrize(("name", "hint"), [("podmn", "did you mean podman?"), ("qqq", "there are ")])
def test_the_nearest_name_is_offered(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"there is no sandbox '{name}'") as caught:
        registry.load("stockade_sandbox.backends", name)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


def test_an_installation_that_is_older_than_the_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_installed", dict)
    with pytest.raises(UsageError, match="installed before the code that runs") as caught:
        find_bot("writing")
    assert caught.value.hint is not None
    assert "make .venv/.dev" in caught.value.hint
