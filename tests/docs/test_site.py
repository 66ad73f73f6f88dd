"""`make site`: the docs as a site, built strictly, with every page of use in its menu."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE_S

ROOT = Path(__file__).parents[2]


def build() -> "subprocess.CompletedProcess[str]":
    """As in `make site`, from the files that it put there."""
    argv = [str(ROOT / ".venv" / "bin" / "zensical"), "build", "--strict", "--clean"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def site() -> Path:
    subprocess.run(["make", "-s", "site"], cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=True)
    return ROOT / "build" / "html"


def test_it_has_every_page_asks_nobody_else_and_is_searched(site: Path) -> None:
    pages = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert not [page for page in pages if not (site / page.parent / page.name.replace("README", "index")).is_file()]
    index = (site / "index.html").read_text()
    loaded = re.findall(r"<(?:script|img|source|iframe)[^>]* src=\"([^\"]+)|<link[^>]* href=\"([^\"]+)", index)
    assert not [address for pair in loaded for address in pair if "//" in address]
    assert "byte for byte" in json.dumps(json.loads((site / "search.json").read_text()))


def test_a_link_that_leads_nowhere_ends_it(site: Path) -> None:
    page = site.parent / "site" / "docs" / "chat.md"
    before = page.read_text()
    page.write_text(f"{before}\n[x](nowhere.md)\n")
    broken = build()
    page.write_text(before)
    assert broken.returncode != 0
    assert "page does not exist" in broken.stdout + broken.stderr


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "zensical.toml").read_text()
    assert tomllib.loads(menu)["project"]["nav"][0] == {"Stockade": "index.md"}
    pages = [path for path in (ROOT / "docs").glob("*.md") if f'"docs/{path.name}"' not in menu]
    assert not pages
