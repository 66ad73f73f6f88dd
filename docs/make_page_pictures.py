"""Draws docs/pictures/page-*.png, the web page in Chromium on real runs: `make pictures`. As in make_pictures.py only
the model reads its answers from a file. What differs from one time to the next (ids, times) is left as it is.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.server.conftest import Stage, asked, begin, make_stage, until

from stockade.testing import say

TARGET = Path(__file__).parent / "pictures"
PATIENCE_MS = 60_000
COUNTRIES = '''\
"""Inhabitants by country."""

import csv
from collections import Counter


def countries(path: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with open(path, newline="") as lines:
        for row in csv.DictReader(lines):
            found[row["country"]] += int(row["inhabitants"])
    return found
'''
WRITES = (
    say("write_file", thought="A module of its own, which reads the table by its header.", path="countries.py",
        content=COUNTRIES),
    say("shell", thought="Two numbers of the table are old.",
        command="sed -i 's/545796/567131/; s/487371/489160/' data.csv; python3 -c \"import countries as c; "
        "[print(f'{n:>9,}  {k}') for k, n in c.countries('data.csv').most_common()]\""),
    say("finish", answer="countries.py sums the inhabitants of each country, and Lisbon and Gdansk have the numbers "
        "of 2025."),
)  # fmt: skip
ASKS = (
    say("shell", thought="Which tests there are, and whether they pass now.", command="ls; head -3 data.csv"),
    say("shell", thought="The header is in English already; I only sort by name.",
        command="{ head -1 data.csv; tail -n +2 data.csv | sort; } > sorted.csv && mv sorted.csv data.csv"),
    say("finish", answer="Sorted."),
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """`screen` is the page's, behind the #, with the id of a run in the place of its name in braces; `sign`: what is
    there when it is complete; `show`: the label of what is scrolled to the top.
    """

    screen: str
    sign: str
    theme: Literal["light", "dark"] = "light"
    size: tuple[int, int] = (1200, 760)
    show: str = ""


PICTURES = {
    "page-runs": Picture("/", ".runs a"),
    "page-new": Picture("/new", "textarea"),
    "page-run": Picture("/runs/{asks}", ".card", "dark"),
    "page-review": Picture("/runs/{writes}", ".file", show="Review"),
    "page-phone": Picture("/runs/{asks}", ".card", size=(360, 720)),
}


def started(stage: Stage) -> Mapping[str, str]:
    """Ids of runs, each as it is to be in the pictures."""
    with stage.client(stage.token("ann")) as client:
        lines = (
            ("writes", "Sum the inhabitants by country, and bring Lisbon and Gdansk up to date", WRITES, "never"),
            ("count", "How many cities has data.csv?", (say("finish", answer="12"),), "never"),
            ("asks", "Sort the table by city", ASKS, "ask"),
        )
        ids = dict[str, str]()
        for name, task, answers, approve in lines:
            script = stage.script(f"{name}.jsonl", *answers)
            ids[name] = begin(client, task=task, model=script, approve=approve)
            if approve == "never":
                until(client, ids[name], "end")
        first = asked(client, ids["asks"])
        reply = client.post(f"/v1/runs/{ids['asks']}/approvals/{first['number']}", json={"allow": True})
        reply.raise_for_status()
        while asked(client, ids["asks"])["number"] == first["number"]:
            pass
    return ids


def drawn(browser: Browser, picture: Picture, address: str, log_in: Callable[[Page], None]) -> bytes:
    width, height = picture.size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=picture.theme)
    try:
        page = context.new_page()
        log_in(page)
        page.goto(address)
        expect(page.locator(picture.sign).first).to_be_visible(timeout=PATIENCE_MS)
        if picture.show:
            page.get_by_label(picture.show, exact=True).evaluate("place => place.scrollIntoView()")
        return page.screenshot()
    finally:
        context.close()


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="stockade-page-", ignore_cleanup_errors=True) as home:
        stage = make_stage(Path(home))
        shutil.copytree(TARGET.parents[1] / "examples" / "demo", stage.demo, dirs_exist_ok=True)
        try:
            stage.serve()
            ids = started(stage)

            def log_in(page: Page) -> None:
                page.goto(stage.call("token", "login", "ann", "--url", stage.url).stdout.strip())
                expect(page.locator("#who")).to_have_text("ann", timeout=PATIENCE_MS)

            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                for name, picture in PICTURES.items():
                    address = f"{stage.url}/#{picture.screen.format(**ids)}"
                    (TARGET / f"{name}.png").write_bytes(drawn(browser, picture, address, log_in))
                    print(f"wrote docs/pictures/{name}.png")
                browser.close()
        finally:
            stage.end()


if __name__ == "__main__":
    main()
