"""Images that the user attaches: from the file to the provider's own form, on record, and refused where nobody sees."""

import base64
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from stockade.core.messages import Image, Message, ModelRequest
from stockade.models.anthropic import body as anthropic_body
from tests.cli.conftest import DONE, Stage
from tests.cli.test_chat import READY, Chat, Start, chatting
from tests.support.strong_model import StrongModel, shell, strong_model

__all__ = ["chatting"]
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR4nGO4IyeHFTEMLQkAid1GAXiz9RcAAAAASUVORK5CYII="
)
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
PARTS = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": URL}}]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrongModel]:
    with strong_model([[shell("true")], "A red dot."]) as model:
        monkeypatch.setenv("OLLAMA_HOST", model.url)
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        yield model


def shows(server: StrongModel, *capabilities: str) -> None:
    """An Ollama whose model can do this."""
    server.routes["/api/show"] = {"capabilities": capabilities, "model_info": {"x.context_length": 131072}}


def attached(stage: Stage, data: bytes = PNG, name: str = "dot.jpg") -> str:
    path = stage.tmp_path / name
    path.write_bytes(data)
    return str(path)


def asked(stage: Stage, *flags: str, model: str = "ollama/strong") -> Any:
    return stage.call("run", "What is it?", "--folder", str(stage.demo), "-m", model, "--no-input", *flags)


def test_a_model_that_sees_is_shown_it_and_it_is_on_record(stage: Stage, server: StrongModel) -> None:
    shows(server, "vision", "tools")
    ended = asked(stage, "--attach", attached(stage))
    assert (ended.status, ended.out) == (0, "A red dot.\n"), ended.err
    assert "[image: dot.jpg, png, 1 kB]" in ended.err
    assert [turn.body["messages"][1]["content"] for turn in server.turns] == [PARTS, PARTS]
    first = stage.call("runs", "show", "--json").events[0]
    assert [(image["name"], image["media_type"]) for image in first["images"]] == [("dot.jpg", "image/png")]
    more = stage.call("run", "-c", "And now?", "--no-input", "--attach", attached(stage), folder=stage.demo)
    assert more.status == 0, more.err
    told = [message["content"] for message in server.turns[2].body["messages"] if message["role"] == "user"]
    assert (told[0], told[1][1:]) == (PARTS, PARTS[1:])
    assert told[1][0]["text"].startswith("New task: And now?")


def test_one_that_does_not_see_is_refused_by_name(stage: Stage, server: StrongModel) -> None:
    shows(server, "tools")
    ended = asked(stage, "--attach", attached(stage))
    assert ended.status == 2
    assert "ollama/strong does not see images (so says Ollama's /api/show)" in ended.err
    assert (server.turns, stage.call("runs", "list", "--json").out) == ([], "")
    assert asked(stage).status == 0, "without an image it is as good as any"


def test_where_nobody_knows_that_is_said(stage: Stage, server: StrongModel) -> None:
    ended = asked(stage, "--attach", attached(stage), model="openai/strong")
    assert "nobody says whether openai/strong sees images: they are sent to it" in ended.err
    assert server.turns[0].body["messages"][1]["content"] == PARTS


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GIF is a name", "this is no image"),
        (PNG + bytes(3_750_000), "it is larger than 3750000 bytes"),
        (None, "it cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_attached(stage: Stage, data: bytes | None, why: str) -> None:
    path = str(stage.tmp_path / "none.png") if data is None else attached(stage, data, "picture.png")
    ended = stage.run(DONE, flags=("--no-input", "--attach", path))
    assert (ended.status, f"--attach {path}: {why}" in ended.err) == (2, True), ended.err


def test_a_fifo_is_no_image(stage: Stage) -> None:
    os.mkfifo(path := stage.tmp_path / "fifo.png")
    ended = stage.run(DONE, flags=("--no-input", "--attach", str(path)))
    assert "it cannot be read: it is no regular file" in ended.err


def test_in_a_chat_it_goes_with_the_next_task(stage: Stage, chatting: Start, server: StrongModel) -> None:
    shows(server, "vision", "tools")
    chat: Chat = chatting(words=("chat", "--folder", str(stage.demo), "-m", "ollama/strong"))
    chat.say("/attach /nowhere.png", "--attach /nowhere.png: it cannot be read")
    chat.say(f"/attach '{attached(stage, name='a b.png')}'", "a b.png: with your next task")
    chat.say("What is it?", "A red dot.", READY)
    chat.say(f"/attach {attached(stage)}", "dot.jpg: with your next task")
    chat.say("And this?", "A red dot.", READY)
    chat.say("And again?", "A red dot.", READY)
    assert chat.leave() == 0
    events = stage.call("runs", "show", "--json").events
    names = [[image["name"] for image in event["images"]] for event in events if "task" in event]
    assert names == [["a b.png"], ["dot.jpg"], []]


def test_anthropics_form() -> None:
    image = Image(name="x", media_type="image/png", base64="aGk=")
    request = ModelRequest(messages=(Message(role="user", content="What?", images=(image,)),))
    content = json.loads(anthropic_body(request, "m"))["messages"][0]["content"]
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert content[0] == {"type": "image", "source": source}
    assert content[1]["text"] == "What?"
