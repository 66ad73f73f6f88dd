"""What begins with a slash in a chat: one table, an entry a command."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from stockade import changes
from stockade.cli.ui import review
from stockade.cli.ui.console import write_prose
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import one_line
from stockade.cli.ui.summary import network
from stockade.core.errors import StockadeError
from stockade.core.events import HistoryCompacted, RunEvent
from stockade.core.ports import Differ
from stockade.loop.state import fold
from stockade.runtime import sandboxes
from stockade.runtime.bots import find_bot
from stockade.runtime.records import SystemClock
from stockade.runtime.resume import make_branch
from stockade_sandbox.policy import parse_network

if TYPE_CHECKING:
    from rich.console import Console

    from stockade.cli.chat import Chat
    from stockade.cli.ui.review import Decider

Outcome = Sequence[RunEvent] | None
"""What goes on record; None: the user is asked again; nothing: the sandbox ends."""


@dataclass(frozen=True, slots=True)
class Command:
    """`takes`: what may stand behind it. `anytime`: also while the bot works."""

    about: str
    do: Callable[["Chat", str], Awaitable[Outcome]]
    takes: str = ""
    anytime: bool = False


def name_of(text: str) -> str:
    return text.split(maxsplit=1)[0]


def rest_of(text: str) -> str:
    return text.removeprefix(name_of(text)).strip()


async def _attach(chat: "Chat", rest: str) -> Outcome:
    _tell(chat, *await to_thread.run_sync(chat.desk.attach, rest, chat.prepared.parts.model))
    return None


async def _help(chat: "Chat", _rest: str) -> Outcome:
    _tell(chat, *listing())
    return None


async def _quit(chat: "Chat", _rest: str) -> Outcome:
    chat.desk.leaving = True
    return ()


async def _diff(chat: "Chat", _rest: str) -> Outcome:
    await to_thread.run_sync(_draw, chat, review.draw)
    return None


async def _files(chat: "Chat", _rest: str) -> Outcome:
    await to_thread.run_sync(_draw, chat, review.list_files)
    return None


def _draw(chat: "Chat", draw: Callable[["Console", Differ, list[review.Pending]], None]) -> None:
    try:
        if work := chat.work():
            draw(chat.watch.renderer.console, sandboxes.reviewer(), work)
        else:
            _tell(chat, "nothing is changed that is still to be decided on")
    except StockadeError as error:  # what the bot left running may be writing just now
        say(error.message, error.hint)


async def _apply(chat: "Chat", _rest: str) -> Outcome:
    def ask(decider: "Decider", work: list[review.Pending]) -> str | None:
        return decider.put(work)

    return await chat.decide(ask)


async def _undo(chat: "Chat", rest: str) -> Outcome:
    def take_back() -> None:
        layers, record = chat.watch.facts.layers, changes.recording(chat.record)
        try:
            moved = changes.move(sandboxes.reviewer(), layers, back=True, force=rest == "--force", record=record)
        except StockadeError as error:
            say(error.message, error.hint)
            return
        for path, why in moved.left.items():
            say(f"left as it is: {path}: {why}", "/undo --force takes it too")
        if not moved.paths:
            say("nothing was applied that could be undone")

    await to_thread.run_sync(take_back)
    return None


async def _model(chat: "Chat", rest: str) -> Outcome:
    if not rest:
        _tell(chat, f"{one_line(chat.prepared.started.model)} (/model PROVIDER/NAME takes another)")
        return None
    _tell(chat, "what you say next goes to that model, in a new shell")
    return chat.end_with(model=rest)


def _is_one(read: Callable[[str], object], text: str) -> bool:
    """Whether `read` takes it; the user is told why not."""
    try:
        read(text)
    except StockadeError as error:
        say(error.message, error.hint)
    except ValueError as error:
        say(str(error))
    else:
        return True
    return False


async def _bot(chat: "Chat", rest: str) -> Outcome:
    if not rest:
        _tell(chat, f"{one_line(chat.prepared.started.bot)} (/bot NAME begins a new conversation with another)")
        return None
    if not _is_one(find_bot, rest):
        return None
    _tell(chat, f"what you say next begins a conversation with {one_line(rest)}, on the folder as it is on your side")
    return chat.end_for_another(rest)


async def _net(chat: "Chat", rest: str) -> Outcome:
    if not rest:
        _tell(chat, f"{network(chat.prepared.started.policy.network)} (/net none|open|HOST,... from now on)")
        return None
    if not _is_one(parse_network, rest):
        return None
    _tell(chat, "that holds from what you say next on, in a new shell")
    return chat.end_with(net=rest)


async def _tools(chat: "Chat", _rest: str) -> Outcome:
    parts = chat.prepared.parts
    _tell(chat, ", ".join((*parts.tools, *(one_line(spec.name) for box in parts.toolboxes for spec in box.specs))))
    return None


async def _cost(chat: "Chat", _rest: str) -> Outcome:
    _tell(chat, " · ".join(await chat.cost()))
    return None


async def _compact(chat: "Chat", _rest: str) -> Outcome:
    turns = fold(await chat.store.events(chat.watch.run_id)).turns
    return [HistoryCompacted(at=SystemClock().now(), turn=turns, before_turn=turns + 1)]


async def _rewind(chat: "Chat", rest: str) -> Outcome:
    if not rest.isdecimal():
        say("/rewind wants the number of a turn", "stockade runs show numbers them; 0 is the beginning")
        return None
    try:
        events = await chat.store.events(chat.watch.run_id)
        chat.desk.run_id, _ = await make_branch(chat.store, events, int(rest))
    except StockadeError as error:
        say(error.message, error.hint)
        return None
    _tell(chat, f"run {chat.desk.run_id} is this one after turn {rest}: what you say next goes on from there")
    return chat.end_with()


def _tell(chat: "Chat", *lines: str) -> None:
    for line in lines:
        write_prose(chat.watch.renderer.console, line)


TABLE: dict[str, Command] = {
    "/attach": Command("show the model an image with your next task", _attach, "FILE", anytime=True),
    "/diff": Command("what is changed and not decided on yet", _diff, anytime=True),
    "/apply": Command("look at the changes, and apply or discard them", _apply),
    "/undo": Command("take back what was applied", _undo, "[--force]"),
    "/files": Command("the changed files in a line each", _files, anytime=True),
    "/model": Command("which model; or another one from now on", _model, "[PROVIDER/NAME]"),
    "/bot": Command("which bot this is; or a new conversation with another", _bot, "[NAME]"),
    "/net": Command("what it may reach; or from now on", _net, "[none|open|HOST,...]"),
    "/tools": Command("what it can do", _tools, anytime=True),
    "/cost": Command("turns and tokens so far", _cost, anytime=True),
    "/compact": Command("show the model what was so far in short, to make room", _compact),
    "/rewind": Command("go back to the end of turn N, files included, as a new run", _rewind, "N"),
    "/quit": Command("leave; stockade chat -c goes on", _quit),
    "/help": Command("this list", _help, anytime=True),
}


def abouts() -> dict[str, str]:
    return {name: command.about for name, command in TABLE.items()}


def listing() -> list[str]:
    words = {f"{name} {command.takes}".strip(): command.about for name, command in TABLE.items()}
    return [f"  {name:<24} {about}" for name, about in words.items()]
