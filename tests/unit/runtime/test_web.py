"""Memory, documents and the web as a run gets them: whole runs with a scripted model in a real sandbox."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stockade.core.actions import Failed, ToolResult
from stockade.core.events import ActionFinished, NetworkRequested, RunEvent, RunFinished
from stockade.loop.run import run
from stockade.paths import state_dir
from stockade.runtime.factory import prepare
from stockade.runtime.spec import RunSpec
from stockade.testing.fakes import MemoryStore, say
from stockade.tools.registered import memory_name
from tests.support.documents import pdf
from tests.support.hostile_site import Site, hostile_site


@pytest.fixture
def site() -> Iterator[Site]:
    with hostile_site() as running:
        yield running


async def do(tmp_path: Path, *answers: str, **options: Any) -> tuple[RunFinished, list[RunEvent], list[str]]:
    """A run whose bot says these things; its end, its events, and what its tools said."""
    script = tmp_path / "script.jsonl"
    script.write_text("".join(_line(answer) for answer in (*answers, say("finish", answer="done"))))
    store = MemoryStore()
    given = {"task": "Do it.", "model": f"scripted/{script}", "answers": "json", **options}
    prepared = await prepare(RunSpec.model_validate(given), store)
    finished = await run(prepared.started, prepared.parts)
    events = await store.events(prepared.started.run_id)
    results = [event.observation for event in events if isinstance(event, ActionFinished)]
    return finished, events, [result.text for result in results if isinstance(result, ToolResult)]


def _line(answer: str) -> str:
    return json.dumps({"content": answer}) + "\n"


@pytest.mark.anyio
async def test_what_a_run_remembers_the_next_one_knows(tmp_path: Path) -> None:
    create = say("memory_create", path="/memories/a.md", file_text="the answer is 42")
    finished, _, said = await do(tmp_path, create, tool=("memory",))
    assert finished.status == "done"
    assert said == ["File created successfully at: /memories/a.md"]
    assert (state_dir() / "memory" / "writing" / "a.md").read_text() == "the answer is 42"
    _, _, said = await do(tmp_path, say("memory_view", path="/memories/a.md"), tool=("memory",))
    assert "the answer is 42" in said[0]
    _, _, said = await do(tmp_path, say("memory_view", path="/memories"), tool=("memory",), bot="reading")
    assert said == ["/memories is empty."]


@pytest.mark.anyio
async def test_a_document_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "r.pdf").write_bytes(pdf(["Net income was 17 million"]))
    tools: dict[str, Any] = {"tool": ("read_document",), "folder": (str(tmp_path / "folder"),)}
    _, _, said = await do(tmp_path, say("read_document", path="r.pdf"), **tools)
    assert said == ["r.pdf: PDF, 1 page.\nNet income was 17 million"]


@pytest.mark.anyio
async def test_read_file_names_the_tool_for_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "r.pdf").write_bytes(pdf(["x"]) + b"\xff\xfe")
    folder, wanted = (str(tmp_path / "folder"),), say("read_file", path="r.pdf")
    for tools, words in ((("read_document",), "read it with read_document"), ((), "look at it with the shell")):
        _, events, _ = await do(tmp_path, wanted, folder=folder, tool=("read_file", *tools))
        (failed,) = [event.observation for event in events if isinstance(event, ActionFinished)]
        assert isinstance(failed, Failed)
        assert words in failed.message


@pytest.mark.anyio
async def test_pages_are_held_to_the_rules_of_net_and_on_record(tmp_path: Path, site: Site) -> None:
    """A service of this machine is reached by its one name."""
    asked = [say("read_page", url=f"http://{host}:{site.port}/tea") for host in ("localhost", "evil.test", "127.0.0.1")]
    tools: dict[str, Any] = {"tool": ("read_page",), "net": f"localhost:{site.port}"}
    _, events, said = await do(tmp_path, *asked, **tools)
    assert "'Tea', HTML" in said[0]
    assert said[1] == "evil.test is not on the --net allow list"
    assert "is an address" in said[2]
    assert site.got == ["/tea"]
    requests = [event for event in events if isinstance(event, NetworkRequested)]
    assert [(event.host, event.verdict) for event in requests] == [
        ("localhost", "allowed"), ("evil.test", "refused"), ("127.0.0.1", "refused"),
    ]  # fmt: skip


@pytest.mark.anyio
async def test_a_search_engine_that_the_person_named(tmp_path: Path, site: Site) -> None:
    address = f"http://127.0.0.1:{site.port}"
    _, events, said = await do(tmp_path, say("web_search", query="tea"), tool=("web_search",), search=address)
    assert "8 results from SearXNG" in said[0]
    requests = [event for event in events if isinstance(event, NetworkRequested)]
    assert [(event.host, event.port, event.status) for event in requests] == [("127.0.0.1", site.port, 200)]


@pytest.mark.anyio
async def test_no_search_engine_is_the_persons_to_mend(tmp_path: Path) -> None:
    finished, _, _ = await do(tmp_path, tool=("web_search",))
    assert (finished.status, finished.reason) == ("failed", "tools")
    assert "--search http://HOST:PORT" in finished.detail


def test_each_bot_has_a_memory_of_its_own(tmp_path: Path) -> None:
    assert memory_name("writing") == "writing"
    assert memory_name("../../etc") == "etc"
    assert memory_name("..") == "bot"
    one, other = memory_name(str(tmp_path / "a" / "t.toml")), memory_name(str(tmp_path / "b" / "t.toml"))
    assert one != other
    assert one.startswith("t-")
