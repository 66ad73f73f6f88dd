"""More of the page in a real Chromium: conflicts, what has changed since, outline, keys, limits, weight, odd diffs."""

import gzip
import json
import re

from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Page, Request, Response, Route, expect

from stockade.core.events import ModelStarted, RunFinished, RunStarted
from stockade.runtime.records import open_store
from stockade.testing import say
from tests.server.conftest import asked, until
from tests.server.test_page import User

TEN = "".join(f"{number}\n" for number in range(10))
FIRST = say("shell", command="sed -i 's/^0$/zero/' data.csv")
EVIL = "<script>document.title = 'mine'</script>"


IN_SIGHT = """() => [...document.querySelectorAll(".chunk")].every(one => one.childElementCount
    || one.getBoundingClientRect().bottom < 0 || one.getBoundingClientRect().top > innerHeight)"""


def nodes(page: Page) -> int:
    count = page.evaluate("document.querySelectorAll('*').length")
    assert isinstance(count, int)
    return count


async def longer(user: User, run: str, length: int) -> str:
    """Another run on record, of so many events: the turns of this one, each with a number of its own."""
    store, found = open_store(str(user.stage.path / "STATE" / "stockade" / "runs.db")), f"{run}-long"
    events = await store.events(run)
    first, last = (
        next(at for at, event in enumerate(events) if isinstance(event, kind)) for kind in (ModelStarted, RunFinished)
    )
    one_turn = [event for event in events[first:last] if getattr(event, "turn", 0) == 1]
    made = [
        event.model_copy(update={"run_id": found}) if isinstance(event, RunStarted) else event
        for event in events[:first]
    ]
    for turn in range(1, 1 + (length - len(events)) // len(one_turn) + 1):
        for event in one_turn:
            line = json.loads(event.line.replace("000000", f"{turn:06}"))
            made.append(type(event).model_validate(line | {"turn": turn}))
    await store.append(found, [*made, *events[last:]])
    await store.close()
    assert len(made) > length - len(events)
    return found


def changed(user: User, host: str) -> str:
    """A run that changed the first of ten lines of data.csv, of which the host's are these by now."""
    run = user.run(FIRST, "done", data=TEN)
    until(user.client, run, "end")
    (user.folder(run) / "data.csv").write_text(host)
    return run


def test_a_conflict_is_merged_or_overwritten(user: User) -> None:
    for host, how, result in (
        (TEN.replace("9", "nine"), "Merge both", TEN.replace("9", "nine").replace("0", "zero")),
        (TEN.replace("0", "nought"), "Write the bot's over it", TEN.replace("0", "zero")),
    ):
        run = changed(user, host)
        page = user.open(run)
        page.get_by_role("button", name="Apply 1 of 1 file").click()
        expect(page.get_by_label("Conflict")).to_contain_text("data.csv")
        since = page.get_by_label("Conflict").locator(".diff")
        expect(since.locator(".minus")).to_have_count(1)
        expect(since.locator(".plus")).to_contain_text("nine" if "nine" in host else "nought")
        assert (user.folder(run) / "data.csv").read_text() == host
        page.get_by_role("button", name=how).click()
        expect(page.get_by_role("status")).to_contain_text("1 file applied")
        assert (user.folder(run) / "data.csv").read_text() == result
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_role("status")).to_contain_text("1 file undone")
        assert (user.folder(run) / "data.csv").read_text() == host


def test_what_cannot_be_merged_stays_and_is_named(user: User) -> None:
    host = TEN.replace("0", "nought")
    run = changed(user, host)
    page = user.open(run)
    page.get_by_role("button", name="Apply 1 of 1 file").click()
    page.get_by_role("button", name="Merge both").click()
    expect(page.get_by_role("status")).to_contain_text("not data.csv:")
    assert (user.folder(run) / "data.csv").read_text() == host


def test_what_was_not_reviewed_is_not_applied(user: User) -> None:
    """Another window, or a program, had the run go on."""
    run = user.run(FIRST, "done", say("shell", command="echo 2 > more"), "done", data=TEN)
    until(user.client, run, "end")
    page = user.open(run)
    expect(page.get_by_role("button", name="Apply 1 of 1 file")).to_be_visible()
    assert user.client.post(f"/v1/runs/{run}/messages", json={"text": "go on"}).status_code == 202
    until(user.client, run, "end")
    page.get_by_role("button", name="Apply 1 of 1 file").click()
    expect(page.get_by_role("button", name="Apply 2 of 2 files")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("not those of that ETag")
    assert (user.folder(run) / "data.csv").read_text() == TEN


def test_lines_that_look_like_a_head_are_lines(user: User) -> None:
    swap = "sed -i 's/^-- a$/++ b/' data.csv"
    run = user.run(say("shell", command=swap), "done", data="1\n-- a\n3\n")
    page = user.open(run)
    rows = page.get_by_label("Review").locator("tr")
    expect(rows).to_have_text(["@@ -1,3 +1,3 @@", "111", "2--- a", "2+++ b", "333"])


def test_a_file_is_opened_whole_and_as_text(user: User) -> None:
    run = user.run(say("write_file", path="a b#?%2e&.html", content=EVIL), "done")
    page = user.open(run)
    with user.context.expect_page() as opened:
        page.get_by_role("link", name="whole file").click()
    file = opened.value
    expect(file.locator("body")).to_have_text(EVIL)
    assert file.title() != "mine"
    assert file.evaluate("document.contentType") == "text/plain"


def test_the_files_of_the_sandbox_are_looked_through(user: User) -> None:
    odd = "<script>document.title = `mine`<script>"
    command = f"mkdir -p sub/deep empty; echo inside > sub/deep/f; ln -s /etc/passwd link; echo x > '{odd}'"
    run = user.run(say("shell", command=command), "done", data=TEN)
    until(user.client, run, "end")
    page = user.open(run)
    files = page.locator(".files")
    expect(files.locator("li")).to_have_count(0)
    for name in ("Files of the sandbox", "sub/", "deep/", "empty/"):
        files.get_by_text(name, exact=True).click()
    expect(files).to_contain_text("link -> /etc/passwd")
    expect(files).to_contain_text("data.csv 20 bytes")
    expect(files).to_contain_text(odd)
    expect(files.locator("li", has_text="empty/")).to_contain_text("empty")
    assert page.title() != "mine"
    for name, text in (("sub/deep/f", "inside"), ("data.csv", TEN.split()[0])):
        with user.context.expect_page() as opened:
            files.get_by_role("link", name=f"whole file {name}").click()
        expect(opened.value.locator("body")).to_contain_text(text)


def test_the_models_are_named_with_their_state(user: User) -> None:
    page = user.page
    page.goto(f"{user.stage.url}/#/server")
    expect(page.locator("main")).to_contain_text("nothing is known of it before it is asked")
    expect(page.locator("main")).not_to_contain_text("asked …")


def test_whoever_waits_is_named_on_every_screen(user: User) -> None:
    run = user.run(say("shell", command="echo 1 > one"), "done", approve="ask")
    asked(user.client, run)
    for screen in ("new", "server", ""):
        user.page.goto(f"{user.stage.url}/#/{screen}")
        expect(user.page.get_by_role("link", name="1 run asks you")).to_be_visible()
        expect(user.page).to_have_title("(1) Stockade")
    user.page.get_by_role("link", name="1 run asks you").click()
    user.page.get_by_role("button", name="Allow", exact=True).click()
    expect(user.page.locator(".state")).to_have_text("done")
    expect(user.page.locator("#asks")).to_be_hidden()
    expect(user.page).to_have_title(re.compile("^count"))


def test_the_outline_leads_to_a_turn_and_back_behind_it(user: User) -> None:
    steps = [say("shell", command=f"echo {number} > file{number}") for number in range(3)]
    run = user.run(*steps, "done")
    page = user.open(run)
    turns = page.get_by_label("Turns").get_by_role("listitem")
    expect(turns).to_have_count(4)
    turns.nth(1).get_by_role("link", name="$ echo 1 > file1").click()
    expect(page.locator(".step:focus")).to_contain_text("echo 1 > file1")
    page.get_by_role("button", name="a new run from the end of turn 1", exact=True).click()
    expect(page).not_to_have_url(re.compile(run))
    expect(page.locator(".state")).to_have_text("done")
    expect(page.get_by_label("Review").locator(".file").first).to_contain_text("file0")


def test_ten_thousand_events_stay_smooth(user: User) -> None:
    """However long a run is, only what is near the window is in the document; a link and a search reach all of it."""
    run = user.run(say("shell", command="echo 000000"), "done")
    until(user.client, run, "end")
    with start_blocking_portal() as portal:
        page = user.open(portal.call(longer, user, run, 10_000))
    expect(page.locator("aside")).to_contain_text("Nothing was changed.")
    sizes, seen, page_down = [], set[str](), page.get_by_label("Steps").evaluate("place => place.scrollHeight") // 40
    for number in range(45):
        page.evaluate("top => scrollTo(0, top)", number * page_down)
        page.wait_for_function(IN_SIGHT)
        seen |= set(page.locator(".step pre").all_inner_texts())
        sizes.append(nodes(page))
    assert max(sizes) < 4000, sizes
    assert len(seen) > 1000
    find = page.get_by_role("search")
    find.get_by_label("Find in this run").fill("ECHO 001234")
    find.get_by_role("button", name="Next").click()
    expect(find).to_contain_text("1 of 1")
    expect(page.locator(".step.found")).to_contain_text("$ echo 001234")
    expect(page.locator(".step.found")).to_be_in_viewport()
    find.get_by_label("Find in this run").fill("no such words")
    find.get_by_role("button", name="Previous").click()
    expect(find).to_contain_text("not found")
    page.goto(f"{page.url}/e5000")
    expect(page.locator(".step:focus")).to_be_in_viewport()
    assert nodes(page) < 4000


def test_nothing_moves_under_the_pointer_when_the_review_comes(user: User) -> None:
    run = user.run(say("shell", command="echo 1 > one"), say("shell", command="echo 2 > two"), "done")
    until(user.client, run, "end")
    held = list[Route]()
    user.page.route("**/diff?*", lambda route: held.append(route))
    with user.page.expect_request("**/diff?*"):
        page = user.open(run)
    page.get_by_label("Turns").get_by_role("link", name="$ echo 2 > two").hover()
    page.mouse.down()
    held[0].continue_()
    expect(page.get_by_label("Review")).to_be_visible()
    page.mouse.up()
    expect(page.locator(".step:focus")).to_contain_text("$ echo 2 > two")


def test_a_link_to_a_step_does_not_end_the_watching(user: User) -> None:
    run = user.run(say("shell", command="echo 1 > one"), say("shell", command="echo 2 > two"), "done", approve="ask")
    page = user.open(run)
    allow, approval = page.get_by_role("button", name="Allow", exact=True), page.get_by_label("Approval")
    expect(approval).to_contain_text("one")
    allow.click()
    expect(approval).to_contain_text("two")
    page.get_by_label("Turns").get_by_role("link", name="$ echo 1 > one").click()
    expect(page.locator(".step:focus")).to_contain_text("$ echo 1 > one")
    allow.click()
    expect(page.locator(".state")).to_have_text("done")
    expect(page.get_by_label("Steps")).to_contain_text("2 files changed")


def test_a_run_is_listed_with_its_verdict(user: User) -> None:
    for check, words in (("true", "done, verified"), ("false", "done, not verified")):
        run = user.run(*["done"] * 3, check=[check])
        expect(user.open(run).locator(".bar .state")).to_have_text(words)
        user.page.goto(f"{user.stage.url}/#/")
        expect(user.page.locator(".runs .state").first).to_have_text(words)


def test_all_by_keys(user: User) -> None:
    run = user.run(say("shell", command="echo 1 > one"), "done", approve="ask")
    asked(user.client, run)
    page = user.page
    page.goto(f"{user.stage.url}/#/")
    expect(page.locator(".runs a").first).to_contain_text("asking")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.get_by_label("Search").evaluate("box => box.blur()")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Approval")).to_be_visible()
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Allow", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Apply 1 of 1 file")).to_be_visible()
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("1 file applied")
    assert (user.folder(run) / "one").read_text() == "1\n"


def test_a_run_has_the_limits_of_the_form(user: User) -> None:
    page = user.page
    page.goto(f"{user.stage.url}/#/new")
    page.get_by_label("What is to be done").fill("count")
    page.get_by_text("Bot, model and limits").click()
    page.get_by_label("Turns at most").fill("1")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator(".state")).to_have_text("stopped")
    expect(page.locator("aside")).to_contain_text("1 of 1 turns")


def test_50_mb_of_output_leave_the_page_at_work(user: User) -> None:
    run = user.run(say("shell", command="yes 0123456789 | head -c 50000000"), "done")
    page = user.open(run)
    expect(page.locator(".state")).to_have_text("done")
    expect(page.get_by_label("Steps")).to_contain_text(re.compile(r"\d+ bytes left out"))
    assert page.locator(".out").first.evaluate("place => place.textContent.length") <= 20_000
    page.get_by_role("button", name=re.compile("Show all")).click()
    expect(page.get_by_role("button", name=re.compile("Show all"))).to_have_count(0)


def test_it_is_light_and_asks_nobody_else(user: User) -> None:
    sizes, others = dict[str, int](), list[str]()

    def seen(answer: Response) -> None:
        if answer.request.resource_type in ("document", "script", "stylesheet", "image"):
            sizes[answer.url] = len(gzip.compress(answer.body()))

    def requested(request: Request) -> None:
        if not request.url.startswith(user.stage.url):
            others.append(request.url)

    page = user.window()
    page.on("response", seen)
    page.on("request", requested)
    page.goto(user.stage.url, wait_until="networkidle")
    expect(page.locator("h1")).to_have_text("Runs")
    assert len(sizes) >= 5
    assert sum(sizes.values()) < 100_000
    assert not others


def test_what_has_changed_so_far_is_seen(user: User) -> None:
    """While the run is under way: to look at, and no more."""
    run = user.run(say("shell", command="echo 1 > one"), say("shell", command="echo 2 > two"), "done", approve="ask")
    page, at = user.open(run), f"/v1/runs/{run}"
    look = page.get_by_role("button", name="Show the changes so far")
    expect(page.get_by_label("Approval")).to_contain_text("one")
    look.click()
    expect(page.locator("aside")).to_contain_text("Nothing was changed.")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_label("Approval")).to_contain_text("two")
    page.get_by_role("button", name="Look again").click()
    expect(page.get_by_label("Review").locator(".file")).to_contain_text("one added +1")
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    assert user.client.get(f"{at}/files/one").text == "1\n"
    tag = user.client.get(f"{at}/diff").raise_for_status().headers["ETag"]
    assert user.client.post(f"{at}/apply", json={}, headers={"If-Match": tag}).status_code == 409
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_role("button", name="Apply 2 of 2 files")).to_be_visible()
    expect(page.get_by_role("button", name="Look again")).to_have_count(0)
    expect(page.get_by_label("Review")).to_have_count(1)
