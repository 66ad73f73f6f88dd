"""The network between the browser and the server is cut, and comes back."""

import re
from dataclasses import replace
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from stockade.testing import say
from tests.server.conftest import Stage, until
from tests.server.test_page import user_of
from tests.support.cut import network

COUNT = 12


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_page_misses_nothing_and_shows_nothing_twice(
    stage: Stage, browser: Browser, how: Literal["refused", "silent"]
) -> None:
    with network(int(stage.url.rpartition(":")[2])) as cable:
        token = stage.token(f"direct-{how}", "read", "admin")
        through = replace(stage, url=f"http://127.0.0.1:{cable.port}")
        with user_of(through, browser, f"cut-{how}") as user, stage.client(token) as direct:
            run = user.run(*(say("shell", command=f"sleep 0.3; echo n{number}") for number in range(COUNT)), "done")
            user.page.clock.install()
            page = user.open(run)
            expect(page.get_by_label("Steps")).to_contain_text("$ sleep 0.3; echo n1")
            cable.cut(how)
            if how == "silent":  # nothing is heard for a minute
                page.clock.fast_forward(60_000)
            expect(page.get_by_role("status")).to_contain_text(re.compile("connection broke|cannot be reached"))
            until(direct, run, "end")
            expect(page.get_by_label("Steps")).not_to_contain_text(f"echo n{COUNT - 1}")
            cable.mend()
            expect(page.locator(".bar .state")).to_have_text("done")
            for number in range(COUNT):
                command = page.get_by_label("Steps").locator(
                    "pre", has_text=re.compile(rf"^\$ sleep 0.3; echo n{number}$")
                )
                expect(command).to_have_count(1)
            assert len(until(user.client, run, "end")) > 2 * COUNT
