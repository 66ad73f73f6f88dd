"""Every screen filled by a run that does its worst: 10,000 events of markup and long words, files of odd names, an open
approval, a conflict. Nothing of it becomes the page's, all can be read, and nothing sticks out.
"""

import re
from pathlib import Path
from typing import Literal

from anyio.from_thread import start_blocking_portal
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from stockade.testing import say
from tests.page.test_work import TEN, longer, nodes
from tests.server.conftest import asked, until
from tests.server.test_page import EVIL, TOO_WIDE, User

ODD = (
    "<img src=x onerror=alert(3)>.svg",
    "\u202egpj.exe",
    "new\nline",
    "quote\"'`$(id)",
    "n" * 200,
    " blank",
    "-rf",
    "\x1b[31m",
)
WORST = say(
    "shell",
    thought=f"000000 {EVIL} {'w' * 500}",
    command="python3 -c '"
    + f"""
for name in {ODD!a}: open(name, "w").write({EVIL!a} * 9)
""".replace("'", "'\\''")
    + "'; sed -i s/^0$/zero/ data.csv; printf '\\033[31m%s\\n' '"
    + EVIL
    + "'; seq 300 | tr -d '\\n'",
)


def screened(page: Page, picture: Path) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate(TOO_WIDE) == []
    assert page.locator("main img, main script, main svg").count() == 0
    assert nodes(page) < 4000
    page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000


def begun(user: User) -> tuple[str, str]:
    """Two runs: one that is over with a conflict, and one of 10,000 events that asks."""
    clash = user.run(WORST, say("finish", answer=EVIL * 20), data=TEN, task=f"count {EVIL} {'t' * 300}", approve="ask")
    number = asked(user.client, clash)["number"]
    user.client.post(f"/v1/runs/{clash}/approvals/{number}", json={"allow": True}).raise_for_status()
    until(user.client, clash, "end")
    with start_blocking_portal() as portal:
        long = portal.call(longer, user, clash, 10_000)
    (user.folder(clash) / "data.csv").write_text(TEN.replace("0", "nought"))
    return clash, long


def test_every_screen_of_a_hostile_run(user: User, tmp_path: Path) -> None:
    clash, long = begun(user)
    turns = sum(one.name == "model_answered" for one in until(user.client, long, "end"))
    last = say("shell", thought=EVIL, command=f"echo '{EVIL}' {'x' * 3000}")
    user.stage.script(user.folder(clash).name, *["none"] * turns, last)
    user.client.post(f"/v1/runs/{long}/messages", json={"text": EVIL}).raise_for_status()
    asked(user.client, long)
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for theme in themes:
        for width in (320, 1280):
            user.page.set_viewport_size({"width": width, "height": 800})
            user.page.emulate_media(color_scheme=theme)
            look_at_all(user, clash, long, tmp_path / f"{theme}-{width}")


def look_at_all(user: User, clash: str, long: str, pictures: Path) -> None:
    pictures.mkdir()
    page = user.open(long)
    expect(page.get_by_label("Approval")).to_contain_text("<script>alert(2)</script>\\u202e[rtl]")
    screened(page, pictures / "asks.png")
    page.goto(f"{user.stage.url}/#/")
    expect(page.locator(".runs a").first).to_contain_text("<script>")
    screened(page, pictures / "runs.png")
    user.open(clash)
    review = page.get_by_label("Review")
    expect(review.locator(".file")).to_have_count(len(ODD) + 1)
    names = page.locator("aside li .mono")
    for name in ("\\u202egpj.exe", "new\\nline", "\\x1b[31m"):  # else it would read as exe.jpg
        expect(names.get_by_text(f"A {name}", exact=True)).to_be_visible()
    screened(page, pictures / "review.png")
    page.get_by_role("button", name=re.compile("^(Side by side|In line)$")).click()
    page.get_by_role("button", name=f"Apply {len(ODD) + 1} of {len(ODD) + 1} files").click()
    expect(page.get_by_label("Conflict")).to_contain_text("data.csv")
    screened(page, pictures / "conflict.png")


def test_no_file_hides_a_line_of_itself_or_holds_the_server_up(user: User) -> None:
    """A lone return shifts what Pygments reads by a line; of the other file it would read for ever."""
    write = r"printf 'a = 1\rb = 2\nhidden()\n' > x.py; printf '\"%04000d' 0 | tr 0 '\\' > y.fish; echo 'z = 3' > z.py"
    page = user.open(user.run(say("shell", command=write), "done"))
    review = page.get_by_label("Review")
    expect(review).to_contain_text("y.fish")
    expect(review).to_contain_text("hidden()")
    expect(review).to_contain_text("z = 3")
    assert user.client.get("/health").status_code == 200
