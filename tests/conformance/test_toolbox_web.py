"""`read_page` and `web_search` pass the toolbox suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.fetch import ThroughProxy
from stockade.tools.search import SearchToolbox
from stockade.tools.web import PageToolbox
from stockade_sandbox.reading import ReadingRoom
from tests.support.hostile_site import Site, hostile_site
from tests.support.local_engine import LocalEngine


class TestPages(ToolboxConformance):
    @pytest.fixture
    def site(self) -> Iterator[Site]:
        with hostile_site() as running:
            yield running

    @pytest.fixture
    def toolbox(self, site: Site, tmp_path: Path) -> PageToolbox:
        return PageToolbox(ThroughProxy(site.egress()), ReadingRoom(tmp_path))

    @pytest.fixture
    def good(self, site: Site) -> Call:
        return "read_page", {"url": site.url("/tea")}, "The kettle is filled"


class TestSearch(ToolboxConformance):
    @pytest.fixture
    def toolbox(self) -> SearchToolbox:
        return SearchToolbox(lambda: LocalEngine({"http://a.test/": "Tea time\nall about tea"}))

    @pytest.fixture
    def good(self) -> Call:
        return "web_search", {"query": "tea"}, "http://a.test/"
