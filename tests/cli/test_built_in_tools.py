"""Memory, documents and search by the real command: a scripted model, everything else real."""

from collections.abc import Iterator

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, Stage
from tests.support.documents import pdf
from tests.support.hostile_site import Site, hostile_site

SEARCH = say("web_search", query="tea")


@pytest.fixture
def site() -> Iterator[Site]:
    with hostile_site() as running:
        yield running


def test_the_next_run_of_a_bot_knows_what_the_last_one_saved(stage: Stage) -> None:
    create = say("memory_create", path="/memories/notes.md", file_text="the key is in the blue safe")
    assert stage.run(create, DONE, flags=("--tool", "memory", "--bot", "reading")).status == 0
    ended = stage.run(say("memory_view", path="notes.md"), DONE, flags=("--tool", "memory", "--bot", "reading"))
    assert "the key is in the blue safe" in ended.err
    ended = stage.run(say("memory_view", path="/memories"), DONE, flags=("--tool", "memory"))
    assert "/memories is empty." in ended.err


def test_a_pdf_of_the_folder(stage: Stage) -> None:
    (stage.demo / "report.pdf").write_bytes(pdf(["Net income was 17 million"]))
    ended = stage.run(say("read_document", path="report.pdf"), DONE, flags=("--tool", "read_document"))
    assert ended.status == 0, ended.err
    assert "report.pdf: PDF, 1 page.\nNet income was 17 million" in ended.err


def test_the_engine_is_the_persons_and_a_run_that_goes_on_has_it(
    stage: Stage, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKADE_SEARCH", f"http://127.0.0.1:{site.port}")
    ended = stage.run(SEARCH, SEARCH, DONE, flags=("--tool", "web_search", "--max-turns", "1"))
    assert ended.status == 3, ended.err
    assert "8 results from SearXNG" in ended.err
    monkeypatch.delenv("STOCKADE_SEARCH")
    ended = stage.call("runs", "resume", "--max-turns", "5")
    assert ended.status == 0, ended.err
    assert len(site.got) == 2


def test_no_engine_and_a_wrong_one_are_said_with_the_way_out(stage: Stage) -> None:
    for flags, words in (((), "--search http://HOST:PORT"), (("--search", "ftp://x"), "is not a web address")):
        ended = stage.run(SEARCH, DONE, flags=("--tool", "web_search", *flags))
        assert ended.status == 2
        assert words in ended.err
        assert "Traceback" not in ended.err
