"""What the docs say is so: the commands, the links, the files they name."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_reference_is_what_help_says() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))["page"]()
    assert (ROOT / "docs" / "cli.md").read_text() == page, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_that_are_named_exist(page: Path) -> None:
    named = set(
        re.findall(r"`((?:core|loop|models|answers|sandboxes|store|bots|cli|testing)/[\w/]+\.py)`", page.read_text())
    )
    assert not [name for name in named if not (ROOT / "src" / "stockade" / name).exists()]


def test_the_readme_names_only_commands_that_exist() -> None:
    reference = (ROOT / "docs" / "cli.md").read_text()
    for command in re.findall(r"^stockade (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert f"## stockade {command}\n" in reference
