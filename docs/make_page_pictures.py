"""Draws docs/pictures/page-*.png, the web page in Chromium on real runs: `make pictures`. As in make_pictures.py only
the model reads its answers from a file. What differs from one time to the next (ids, times) is left as it is.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx2
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
    there when it is complete; `clicks`: what is clicked then, by its words; `show`: the label, or else the selector, of
    what is scrolled to the top.
    """

    screen: str
    sign: str
    theme: Literal["light", "dark"] = "light"
    size: tuple[int, int] = (1200, 760)
    show: str = ""
    clicks: tuple[str, ...] = ()


PICTURES = {
    "page-runs": Picture("/", ".runs a"),
    "page-new": Picture("/new", "textarea"),
    "page-run": Picture("/runs/{asks}", ".card", "dark"),
    "page-review": Picture("/runs/{writes}", ".file", show="Review"),
    "page-phone": Picture("/runs/{asks}", ".card", size=(360, 720)),
    "page-files": Picture("/runs/{writes}", ".file", show=".files", clicks=("Files of the sandbox",), size=(1200, 560)),
    "page-batch": Picture("/batches/{batch}", ".tasks a", size=(1200, 560)),
    "page-server": Picture("/server", "main li", size=(1200, 560)),
    "page-conflict": Picture("/runs/{clash}", ".file", show="Conflict", clicks=("Apply 1 of 1 file",)),
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
        ids["clash"] = _clash(stage, client)
        ids["batch"] = _batch(stage, client)
        first = asked(client, ids["asks"])
        reply = client.post(f"/v1/runs/{ids['asks']}/approvals/{first['number']}", json={"allow": True})
        reply.raise_for_status()
        while asked(client, ids["asks"])["number"] == first["number"]:
            pass
    return ids


def _clash(stage: Stage, client: httpx2.Client) -> str:
    """One that changed a line of a file which the user has changed since."""
    notes = stage.demo / "notes"
    notes.mkdir()
    lines = ["# Plan", "", "Lisbon first.", "Then Gdansk.", ""]
    (notes / "plan.md").write_text("\n".join(lines))
    work = say("shell", command="sed -i 's/Lisbon first./Lisbon first, by train./' plan.md")
    script = stage.script("clash.jsonl", work, say("finish", answer="It says how."))
    run = begin(client, task="Say how we get to Lisbon", model=script, folder="notes")
    until(client, run, "end")
    (notes / "plan.md").write_text("\n".join(lines).replace("Lisbon first.", "Porto first, then Lisbon."))
    return run


def _batch(stage: Stage, client: httpx2.Client) -> str:
    answers = {"sum-cities": True, "sum-countries": True, "oldest": False, "largest": True}
    tasks = []
    for name, right in answers.items():
        work = say("shell", command=f"echo 1 > {name}" if right else "true")
        script = stage.script(f"{name}.jsonl", work, say("finish", answer="Done."))
        tasks.append({"id": name, "task": f"Answer {name}", "model": script, "check": f"test -f {name}", "folder": "."})
    batch = client.post("/v1/batches", json={"tasks": tasks, "parallel": 2}).raise_for_status().json()["id"]
    while client.get(f"/v1/batches/{batch}").json()["done"] < len(tasks):
        pass
    return str(batch)


def drawn(browser: Browser, picture: Picture, address: str, log_in: Callable[[Page], None]) -> bytes:
    width, height = picture.size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=picture.theme)
    try:
        page = context.new_page()
        log_in(page)
        page.goto(address)
        expect(page.locator(picture.sign).first).to_be_visible(timeout=PATIENCE_MS)
        for words in picture.clicks:
            page.get_by_text(words, exact=True).click()
        if picture.show:
            place = (
                page.locator(picture.show) if picture.show[0] == "." else page.get_by_label(picture.show, exact=True)
            )
            expect(place).to_be_visible(timeout=PATIENCE_MS)
            page.wait_for_load_state("networkidle")
            place.evaluate("place => place.scrollIntoView()")
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
