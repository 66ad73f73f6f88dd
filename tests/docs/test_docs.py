"""What the docs say is so: the commands, the links, the tables, the files they name."""

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.shown import PAGES, ROOT, all_flags, anchors, calls, columns, inline, problem, tables, without_blocks

SOURCE = ROOT / "packages/stockade/src/stockade"
PACKAGES = "|".join(sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")))
OTHERS_FLAGS = {
    "--": "ends the flags of every program", "--security-opt": "docker", "--network": "docker", "--cap-add": "docker",
    "--cgroup-manager": "podman", "--no-sandbox": "chromium", "--remote-debugging-pipe": "chromium",
    "--arms": "bench.humaneval", "--turns": "bench/store.py", "--directory": "git",
    **dict.fromkeys(("--allowedTools", "--bg", "--fallback-model", "--from-pr", "--json-schema", "--max-budget-usd",
                     "--tmux"), "claude"),
    **dict.fromkeys(("--architect", "--restore-chat-history", "--test-cmd", "--weak-model"), "aider"),
    "--oss": "codex", "--resume": "goose",
}  # fmt: skip
"""Flags in running text that are another program's."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_the_reference_is_what_help_says() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))
    pages = {path.name: path.read_text() for path in (ROOT / "docs" / "cli").iterdir()}
    assert pages == made["pages"](), "run `make docs`"
    assert (ROOT / "docs" / "settings-reference.md").read_text() == made["reference"](), "run `make docs`"
    assert (ROOT / "docs" / "security" / "syscalls.md").read_text() == made["system_calls"](), "run `make docs`"


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)[^)]*\)", without_blocks(page.read_text()))
    wrong = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target.read_text()))):
            wrong.append(link)
    assert not wrong


PICTURES = runpy.run_path(str(ROOT / "docs" / "make_pictures.py"))
FILM = runpy.run_path(str(ROOT / "docs" / "make_film.py"))
CALLS = {name: flow.call for name, flow in PICTURES["FLOWS"].items()} | {FILM["NAME"]: FILM["CALL"]}
OF_THE_PAGE = runpy.run_path(str(ROOT / "docs" / "make_page_pictures.py"))["PICTURES"]


def test_pictures_are_those_that_are_drawn_and_each_is_shown_with_words() -> None:
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"!\[[^\]]{20,}\]\(([^)\s]+)\)", page.read_text())
    }
    there = set(PICTURES["TARGET"].iterdir())
    drawn = {f"{name}.svg" for name in CALLS} | {f"{name}.png" for name in OF_THE_PAGE}
    assert {path.name for path in there} == drawn, "run `make pictures`"
    assert not there - shown


@pytest.mark.parametrize("name", CALLS)
def test_a_picture_names_no_address_and_nothing_of_the_machine_that_drew_it(name: str) -> None:
    text = (PICTURES["TARGET"] / f"{name}.svg").read_text()
    typed, _, _ = CALLS[name].partition(" \\\n")
    root = ElementTree.fromstring(text)
    words = "".join(root.itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert f"stockade {typed}" in words
    assert re.findall(r"https?:[^\"' ]*|@import|@font-face|url\((?!#)", text) == ["http://www.w3.org/2000/svg"]
    assert not re.findall(r"/(?:home(?!/agent/)|root|work|Users)\b", words)
    days = {found.replace("-", "") for found in re.findall(r"20\d\d-?[01]\d-?[0-3]\d(?!\d)", words)}
    assert days <= {PICTURES["DAY"].replace("-", "")}


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    modules = [SOURCE / name for name in re.findall(rf"`((?:{PACKAGES})/[\w/]+\.\w+)`", text)]
    words = without_blocks(text)
    others = re.findall(r"(?<![\w./-])((?:packages|src|tests|bench|examples|docs|notes)/[\w/-]+\.[a-z]+)\b", words)
    packages = {"stockade": SOURCE, "stockade_sandbox": ROOT / "packages/sandbox/src/stockade_sandbox"}
    inside = re.findall(r"`(stockade|stockade_sandbox)/([\w/]+(?:\.\w+)?)/?`", text)
    named = [*modules, *(ROOT / name for name in others), *(packages[top] / name for top, name in inside)]
    assert not [str(path) for path in named if not path.exists()]


def test_each_promise_of_security_has_a_number_and_tests_that_exist() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == [*range(1, len(rows) + 1)]
    assert rows
    files = [
        *(ROOT / "tests").rglob("test_*.py"),
        *(ROOT / "packages/sandbox/src/stockade_sandbox/conformance").glob("*.py"),
    ]
    known = {f"{place}::{name}" for path in files for place, name in _tests_of(path)}
    for number, tests in rows:
        named = re.findall(r"`(?:[\w/]+/)?([\w.]+::\w+)`", tests)
        assert "attacks, *" in tests or named, number
        assert known.issuperset(named), (number, set(named) - known)


def _tests_of(path: Path) -> Iterator[tuple[str, str]]:
    """(its file or class, the test's name) for each."""
    for part in ast.parse(path.read_text()).body:
        inside = part.body if isinstance(part, ast.ClassDef) else [part]
        place = part.name if isinstance(part, ast.ClassDef) else path.name
        yield from ((place, one.name) for one in inside if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def test_pages_that_the_code_names_exist() -> None:
    """In docstrings, comments and hints: a reader of the package has the docs and nothing beside them."""
    texts = {path: path.read_text() for part in (SOURCE, ROOT / "bench") for path in part.rglob("*.py")}
    for path in (ROOT / "tests").rglob("*.py"):
        head, *rest = path.read_text().split('"""')
        texts[path] = rest[0] if rest and not head else ""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        for name in re.findall(r"(?<![\w/-])((?:\.\./)?(?:docs|notes|shared)/[\w/-]+\.md)\b", text)
        if not (ROOT / name).exists()
    ]
    assert not wrong


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "cli"], ids=lambda page: page.name)
def test_commands_that_are_shown_exist(page: Path) -> None:
    wrong = [f"stockade {call}: {found}" for call in calls(page.read_text()) if (found := problem(call))]
    assert not wrong


@every_page
def test_flags_that_are_named_exist(page: Path) -> None:
    named = {word for code in inline(page.read_text()) if (word := re.split(r"[ =|]", code)[0]).startswith("--")}
    wrong = named - all_flags() - OTHERS_FLAGS.keys()
    assert not wrong


@pytest.mark.parametrize(
    "call",
    ["lost", "runs lost", "run TASK --no-such", "runs diff|lose last", "runs list | show --lost", "code T | tool lost"],
)
def test_what_does_not_exist_is_found(call: str) -> None:
    assert problem(call)


@pytest.mark.parametrize("call", ["runs show | less -R", "runs list | show --json", "run T -- --lost", "auto --goal X"])
def test_what_exists_is_not_found_wanting(call: str) -> None:
    assert problem(call) is None


@every_page
def test_a_table_has_a_head_and_its_rows_fit(page: Path) -> None:
    for table in tables(page.read_text()):
        assert len(table) > 1, f"a row without a table: {table[0]}"
        assert re.fullmatch(r"\|(?: *:?-+:? *\|)+", table[1]), f"no head: {table[0]}"
        assert not [row for row in table if columns(row) != columns(table[1])]
