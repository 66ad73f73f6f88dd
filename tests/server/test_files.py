"""The files of a run as its bot sees them, and what changed in the folder beside it."""

import os
from typing import Any

import httpx2
import pytest

from stockade import Client
from stockade.testing import say
from tests.server.conftest import DONE, Stage, begin, until

DOES = r"""
echo 1 > new; mkdir -p made/in; echo 2 > made/in/two; rm gone; ln -s /etc/passwd link; printf '\0\1' > zeros
printf x > $'odd\xff'; echo more >> data.csv
"""


@pytest.fixture
def run(stage: Stage, admin: httpx2.Client) -> str:
    (stage.demo / "gone").write_text("gone\n")
    (stage.demo / "had").mkdir(exist_ok=True)
    (stage.demo / "had" / "it").write_text("it\n")
    made = begin(admin, model=stage.script("files", say("shell", command=DOES), DONE))
    until(admin, made, "end")
    return made


def listed(client: httpx2.Client, run: str, folder: str = "") -> dict[str, dict[str, Any]]:
    found = client.get(f"/v1/runs/{run}/files", params={"folder": folder})
    found.raise_for_status()
    return {one["path"]: one for one in found.json()["entries"]}


def test_they_are_those_of_the_folder_with_what_the_bot_did(admin: httpx2.Client, run: str) -> None:
    found = listed(admin, run)
    assert list(found)[:2] == ["had", "made"]
    assert {"data.csv", "new", "link", "zeros"} <= set(found)
    assert "gone" not in found
    assert found["link"] == {"path": "link", "kind": "symlink", "size": 0, "target": "/etc/passwd"}
    assert list(listed(admin, run, "had")) == ["had/it"]
    assert list(listed(admin, run, "/workspace/made/")) == ["made/in"]
    assert listed(admin, run, "made/in")["made/in/two"]["size"] == 2
    at = f"/v1/runs/{run}/files"
    assert admin.get(f"{at}/had/it").text == "it\n"
    assert admin.get(f"{at}/made/in/two").text == "2\n"
    assert admin.get(f"{at}/zeros").status_code == 422
    assert admin.get(f"{at}/zeros", params={"raw": "true"}).content == b"\0\1"
    odd = next(path for path in found if path.startswith("odd"))
    assert admin.get(f"{at}/{odd}").text == "x"
    reply = admin.post(f"/v1/runs/{run}/discard", json={"paths": [odd]}, headers={"If-Match": "*"})
    assert reply.json()["paths"] == [odd]
    assert odd not in listed(admin, run)


@pytest.mark.parametrize("folder", ["none", "data.csv", "link", "..", "../..", "/etc", "/", "had/../..", "gone", "~"])
def test_nothing_else_is_listed(admin: httpx2.Client, run: str, folder: str) -> None:
    assert admin.get(f"/v1/runs/{run}/files", params={"folder": folder}).status_code == 404


@pytest.mark.parametrize(
    "path", ["link", "had", "gone", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "had%2f..%2f..%2fx"]
)
def test_nothing_else_is_read(admin: httpx2.Client, run: str, path: str) -> None:
    assert admin.get(f"/v1/runs/{run}/files/{path}").status_code == 404


def test_what_is_over_is_the_folders_own(stage: Stage, admin: httpx2.Client, run: str) -> None:
    admin.post(f"/v1/runs/{run}/discard", headers={"If-Match": "*"}).raise_for_status()
    assert set(listed(admin, run)) == set(os.listdir(stage.demo))
    assert admin.get(f"/v1/runs/{run}/files/gone").text == "gone\n"


def test_what_changed_in_the_folder_since(stage: Stage, admin: httpx2.Client, run: str) -> None:
    at = f"/v1/runs/{run}/diff?host=true"
    assert admin.get(at).json()["files"] == []
    with (stage.demo / "data.csv").open("a") as file:
        file.write("mine\n")
    (stage.demo / "had" / "it").write_text("not the bot's matter\n")
    (found,) = admin.get(at).json()["files"]
    assert (found["path"], found["change"]["kind"]) == ("data.csv", "modified")
    assert "+mine" in found["patch"]
    assert "more" not in found["patch"]


def test_others_see_nothing(stage: Stage, admin: httpx2.Client, run: str) -> None:
    with stage.client(stage.token("other", "run", "read")) as other:
        for what in ("files", "files/had/it", "diff?host=true"):
            assert other.get(f"/v1/runs/{run}/{what}").status_code == 404


def test_the_client_has_them(stage: Stage, run: str) -> None:
    with Client(stage.url, stage.token("mine", "admin")) as client:
        there = client.attach(run)
        found = there.files("made")
        assert [(one.path, one.kind) for one in found.entries] == [("made/in", "directory")]
        assert there.read_file("had/it") == "it\n"
        assert there.diff(host=True).files == ()
