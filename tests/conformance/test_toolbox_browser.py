"""The browser against the suite of toolboxes: it answers even where it reaches nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from tests.support.site import site
from tests.unit.plugins.browser.scene import InASandbox


class TestBrowser(ToolboxConformance):
    @pytest.fixture
    def port(self, tmp_path: Path) -> Iterator[int]:
        (tmp_path / "page.html").write_text("<title>Hello</title><p>there</p>")
        with site(tmp_path, None) as port:
            yield port

    @pytest.fixture
    def toolbox(self, tmp_path: Path, port: int) -> InASandbox:
        base = tmp_path / "run"
        base.mkdir()
        return InASandbox(base, port)

    @pytest.fixture
    def good(self, port: int) -> Call:
        return "browser_open", {"url": f"http://good.test:{port}/page.html"}, "there"
