"""The page in a real Chromium, as a user: log in, begin, watch, decide, review, apply, undo, come back."""

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from stockade.testing import say
from tests.server.conftest import Stage, asked, begin, killed, until

expect.set_options(timeout=60_000)
TOO_WIDE = """document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("main *")]
    .filter(one => one.getBoundingClientRect().right > innerWidth).map(one => one.outerHTML.slice(0, 200))"""
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e[rtl]</pre>"
WRITES = say(
    "shell",
    thought=EVIL,
    command="printf 'def add(a, b):\\n    return a + b\\n' > calc.py; seq 1 60; echo two > data.csv",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path is not None, "chromium is not installed: .ci/run does it"
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def user(stage: Stage, browser: Browser, request: pytest.FixtureRequest) -> Iterator["User"]:
    with user_of(stage, browser, request.node.name) as made:
        yield made


@contextmanager
def user_of(stage: Stage, browser: Browser, name: str) -> Iterator["User"]:
    made = User(stage, browser, name, stage.token(name))
    try:
        yield made
    finally:
        made.context.close()
        made.client.close()
    assert made.wrong == []


class User:
    """One who opened the link that a terminal printed. Whatever a page logs as an error, or a dialog, is a failure."""

    def __init__(self, stage: Stage, browser: Browser, name: str, token: str) -> None:
        self.stage, self.client, self.wrong = stage, stage.client(token), list[str]()
        self.context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 800})
        self.page = self.window()
        link = stage.call("token", "login", name, "--url", stage.url).stdout.strip()
        self.page.goto(link)
        expect(self.page.locator("#who")).to_have_text(name)

    def window(self) -> Page:
        page = self.context.new_page()
        page.on("dialog", lambda dialog: dialog.accept())
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda one: self.wrong.append(one.text) if "Content Security" in one.text else None)
        return page

    def open(self, run: str) -> Page:
        self.page.goto(f"{self.stage.url}/#/runs/{run}")
        expect(self.page.get_by_label("Steps")).to_be_attached()
        return self.page

    def run(self, *answers: str | dict[str, Any], data: str = "a\nb\nc\n", **asked: Any) -> str:
        """One that is begun by the API, in a folder of its own."""
        folder = self.stage.demo / secrets.token_hex(4)
        folder.mkdir()
        (folder / "data.csv").write_text(data)
        script = self.stage.script(folder.name, *answers)
        return begin(self.client, model=script, folder=folder.name, **asked)

    def folder(self, run: str) -> Path:
        return Path(self.client.get(f"/v1/runs/{run}").json()["folder"])


def test_begin_watch_review_apply_and_undo(user: User) -> None:
    stage, page = user.stage, user.page
    page.get_by_role("link", name="New run").click()
    page.get_by_label("What is to be done").fill("count the lines")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator(".bar .state")).to_have_text("done")
    expect(page.locator("main")).to_contain_text("$ wc -l < data.csv > count.txt")
    for words in ("no network", "writes to a copy, which you review", "asks nobody", "2 of 100 turns"):
        expect(page.locator("aside")).to_contain_text(words)
    expect(page.get_by_label("Review")).to_contain_text("count.txt")
    assert not (stage.demo / "count.txt").exists()
    page.get_by_role("button", name="Apply 1 of 1 file").click()
    expect(page.get_by_role("status")).to_contain_text("1 file applied")
    assert (stage.demo / "count.txt").read_text() == "3\n"
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Apply again")).to_be_visible()
    assert not (stage.demo / "count.txt").exists()
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator(".runs a")).to_contain_text("count the lines")
    page.get_by_label("Search").fill("nothing like that")
    expect(page.locator("main")).to_contain_text("No run is like that.")


def test_it_asks_in_two_windows_and_one_answer_counts(user: User) -> None:
    run = user.run(say("shell", command="echo 1 > one"), say("shell", command="echo 2 > two"), "done", approve="ask")
    page, other = user.open(run), user.window()
    other.goto(page.url)
    expect(page).to_have_title(re.compile(r"^\(1\)"))
    for window in (page, other):
        expect(window.get_by_label("Approval")).to_contain_text("$ echo 1 > one")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(other.get_by_label("Approval")).to_contain_text("$ echo 2 > two")
    other.get_by_label("Or why not").fill("three, please")
    other.get_by_role("button", name="Refuse").click()
    for window in (page, other):
        expect(window.locator(".bar .state")).to_have_text("done")
        expect(window.get_by_label("Steps")).to_contain_text("three, please")
        expect(window.get_by_label("Review").locator(".file")).to_have_count(1)


def test_a_comment_on_a_line_goes_to_the_bot_and_files_are_chosen(user: User) -> None:
    run = user.run(WRITES, "done", say("shell", command="echo three > data.csv"), "as you said")
    page = user.open(run)
    review = page.get_by_label("Review")
    calc = review.locator(".file", has_text="calc.py")
    expect(calc.locator(".k").first).to_have_text("def")
    review.get_by_role("button", name="Side by side").click()
    review.locator(".file", has_text="data.csv").get_by_label("comment on line 1").last.click()
    review.get_by_label("comment on data.csv:1").or_(review.get_by_label("Comment on data.csv:1")).fill("three")
    review.get_by_role("button", name="Keep").click()
    expect(review).not_to_contain_text("Keep")
    page.get_by_role("button", name="Send 1 comment to the bot").click()
    expect(page.get_by_label("Steps")).to_contain_text("goes on: About your changes:")
    expect(page.get_by_label("Steps")).to_contain_text("data.csv:1: three")
    expect(page.locator(".bar .state")).to_have_text("done")
    expect(page.get_by_label("Review")).to_contain_text("three")
    page.get_by_label("apply calc.py").uncheck()
    page.get_by_role("button", name="Apply 1 of 2 files").click()
    expect(page.get_by_role("status")).to_contain_text("1 file applied")
    assert (user.folder(run) / "data.csv").read_text() == "three\n"
    assert not (user.folder(run) / "calc.py").exists()
    page.get_by_role("button", name="Discard all").click()
    expect(page.get_by_role("status")).to_contain_text("1 file discarded")


def test_the_steps_of_a_short_run_have_their_height_from_the_start(user: User) -> None:
    run = user.run(WRITES, "done")
    user.page.add_init_script("window.IntersectionObserver = class { observe() {} unobserve() {} }")  # one that is late
    page = user.open(run)
    page.reload()
    expect(page.get_by_label("Review").locator(".file")).to_have_count(2)
    assert page.locator(".chunk").evaluate_all("all => all.map(one => one.style.height)") == ["", ""]
    assert page.locator(".step").count() >= 2


def test_files_are_thrown_away_one_by_one(user: User) -> None:
    made = "echo 1 > one; echo 2 > two; echo 3 > three; mkdir __pycache__; touch __pycache__/a.pyc"
    run = user.run(say("shell", command=made), "done")
    page, folder = user.open(run), user.folder(run)
    expect(page.locator("aside")).to_contain_text("caches are left out: __pycache__ 2")
    page.get_by_label("apply three").uncheck()
    page.get_by_label("apply one").uncheck()
    page.get_by_role("button", name="Discard 1 of 3 files").click()
    expect(page.get_by_role("status")).to_contain_text("1 file discarded")
    expect(page.get_by_label("Review").locator(".file")).to_have_count(2)
    page.reload()
    expect(page.get_by_label("Steps")).to_contain_text("discarded: two")
    page.get_by_role("button", name="Apply 2 of 2 files").click()
    expect(page.get_by_role("status")).to_contain_text("2 files applied")
    assert {path.name for path in folder.iterdir()} == {"data.csv", "one", "three"}


def test_files_are_taken_back_one_by_one(user: User) -> None:
    run = user.run(say("shell", command="echo 1 > one; echo 2 > two; echo 3 > three"), "done")
    page, folder = user.open(run), user.folder(run)
    page.get_by_label("apply three").uncheck()
    page.get_by_role("button", name="Apply 2 of 3 files").click()
    page.get_by_label("undo two").uncheck()
    page.get_by_role("button", name="Undo 1 of 2 files").click()
    expect(page.get_by_role("status")).to_contain_text("1 file undone")
    assert {path.name for path in folder.iterdir()} == {"data.csv", "two"}
    expect(page.get_by_label("Review").locator(".file")).to_have_count(2)
    page.get_by_role("button", name="Apply 2 of 2 files").click()
    expect(page.get_by_role("button", name="Undo 3 of 3 files")).to_be_visible()
    page.get_by_label("undo one").uncheck()
    page.get_by_role("button", name="Undo 2 of 3 files").click()
    expect(page.get_by_role("button", name="Undo 1 of 1 file")).to_be_visible()
    assert {path.name for path in folder.iterdir()} == {"data.csv", "one"}
    page.get_by_role("button", name="Apply again").click()
    expect(page.get_by_role("button", name="Undo 3 of 3 files")).to_be_visible()
    assert {path.name for path in folder.iterdir()} == {"data.csv", "one", "two", "three"}


def test_what_a_bot_writes_is_text(user: User) -> None:
    """Markup, scripts, SVG and odd names: nothing of it becomes a part of the page, or runs."""
    odd = (
        "printf '%s' '<svg onload=alert(1)>' > '<img src=x onerror=alert(3)>.svg'; "
        "printf '\\033[31mred\\033[0m %s\\n' '" + EVIL + "'"
    )
    run = user.run(say("shell", thought=EVIL, command=odd), say("finish", answer=EVIL), task=f"count {EVIL}")
    page = user.open(run)
    expect(page.locator(".bar .state")).to_have_text("done")
    expect(page.get_by_label("Review")).to_contain_text("<img src=x onerror=alert(3)>.svg")
    for place in ("h1", ".thought >> nth=0", ".out >> nth=0"):
        expect(page.locator(place)).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img, main script, main svg").count() == 0
    page.goto(f"{user.stage.url}/#/")
    expect(page.locator(".runs")).to_contain_text("<script>alert(2)</script>")
    assert page.locator("main img, main script").count() == 0


def test_a_page_goes_on_when_the_server_was_killed(own: Stage, browser: Browser) -> None:
    own.serve()
    with user_of(own, browser, "ann") as user:
        slow = say("shell", command="echo before; while [ ! -e go ]; do sleep 0.05; done")
        run = user.run(say("shell", command="echo zero"), slow, "done")
        page = user.open(run)
        expect(page.get_by_label("Steps")).to_contain_text("before")
        port = int(own.url.rpartition(":")[2])
        killed(own)
        expect(page.get_by_role("status")).to_contain_text(re.compile("connection broke|cannot be reached"))
        own.serve(port=port)
        expect(page.locator(".bar .state")).to_have_text("interrupted")
        expect(page.get_by_label("Steps").locator("pre", has_text="$ echo zero")).to_have_count(1)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator(".bar .state")).to_have_text("done")


def test_others_runs_are_not_there(user: User, browser: Browser) -> None:
    run = user.run(say("shell", command="echo 1 > one"), "done")
    until(user.client, run, "end")
    bob = User(user.stage, browser, "bob", user.stage.token("bob", "read", "run"))
    try:
        bob.page.goto(f"{user.stage.url}/#/runs/{run}")
        expect(bob.page.get_by_role("status")).to_contain_text("there is no run")
        bob.open(begin(bob.client))
        expect(bob.page.get_by_label("Review")).to_contain_text("count.txt")
        expect(bob.page.get_by_role("button", name="Apply")).to_have_count(0)
    finally:
        bob.context.close()
        bob.client.close()


def test_a_login_works_once_and_a_cookie_only_for_this_page(stage: Stage, browser: Browser) -> None:
    with user_of(stage, browser, "once") as user:
        link = stage.call("token", "login", "once", "--url", stage.url).stdout.strip()
        key = link.partition("=")[2]
        answers = [httpx2.post(f"{stage.url}/login", json={"key": key}) for _ in range(2)]
        assert [one.status_code for one in answers] == [204, 401]
        cookie = answers[0].headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
        session = cookie.partition("=")[2].partition(";")[0]
        jar = {"stockade_session": session}
        assert httpx2.get(f"{stage.url}/v1/token", cookies=jar).json()["name"] == "once"
        for headers in ({}, {"Origin": "http://evil.example"}):
            answer = httpx2.post(f"{stage.url}/v1/runs", json={"task": "x"}, cookies=jar, headers=headers)
            assert answer.status_code == 403
        for wrong in (session[:-1] + ("0" if session[-1] != "0" else "1"), "x.y.z", session.replace(".", ".9", 1), ""):
            assert httpx2.get(f"{stage.url}/v1/token", cookies={"stockade_session": wrong}).status_code == 401
        stage.tokens.remove("once")
        assert httpx2.get(f"{stage.url}/v1/token", cookies=jar).status_code == 401
        user.page.reload()
        expect(user.page.get_by_role("heading")).to_have_text("Log in")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_every_screen_is_accessible(user: User, theme: Any, width: int) -> None:
    long = say("shell", thought="a" * 400, command="seq 1 200; echo x > " + "n" * 200)
    ask = user.run(long, WRITES, "done", approve="ask")
    done = user.run(long, WRITES, say("finish", answer="word " * 300), task="t" * 300)
    until(user.client, done, "end")
    asked(user.client, ask)
    page = user.page
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme)
    for where, sign in (
        ("/", ".runs a"),
        ("/new", "textarea"),
        ("/server", "dl"),
        (f"/runs/{ask}", ".card"),
        (f"/runs/{done}", "[aria-label=Review]"),
        ("/login", "h1"),
    ):
        page.goto(f"{user.stage.url}/#{where}")
        expect(page.locator(sign).first).to_be_visible()
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate(TOO_WIDE) == [], where
