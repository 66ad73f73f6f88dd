"""What makes a bot: its role, the tools it may use, what it may do to a folder. A new bot is one of these."""

from pydantic import Field

from stockade.core.actions import Action, Finish, Shell
from stockade.core.budget import Budget
from stockade.core.data import Data
from stockade.core.policy import FolderMode


class Example(Data):
    """A short run as it should be: each turn a thought, an action, and what the bot is then told."""

    task: str
    turns: tuple[tuple[str, Action, str], ...]


class BotSpec(Data):
    """A kind of bot. `prompt` is its role; the answer protocol adds how to answer, and spells the `example`."""

    name: str
    summary: str
    prompt: str
    example: Example | None = None
    tools: tuple[str, ...] = ("shell", "write_file", "finish")
    folder_mode: FolderMode = "overlay"
    needs_folder: bool = False
    budget: Budget = Field(default_factory=Budget)


WRITING = BotSpec(
    name="writing",
    summary="changes files in a folder; you review before anything is kept",
    prompt=(
        "You are a careful engineer at a bash shell on Linux. Your current folder {workdir} holds the user's files."
        " Do exactly what the task asks, one action at a time. Compare what you have written with the task; when it is"
        " wrong, correct it. Change a part of a file with sed: write_file"
        " replaces all of it. Run a program before you change it, and again afterwards. There is no network, no sudo,"
        " no editor and nobody to ask. When the task is done, finish with one sentence for the user."
    ),
    example=Example(
        task="Write the size of photo.png in bytes into size.txt.",
        turns=(
            (
                "I write the size and look at it.",
                Shell(command="wc -c photo.png > size.txt; cat size.txt"),
                "The command has succeeded. Output:\n2048 photo.png",
            ),
            (
                "Only the number is asked for, the name must go.",
                Shell(command="wc -c < photo.png > size.txt; cat size.txt"),
                "The command has succeeded. Output:\n2048",
            ),
            (
                "size.txt is right now.",
                Finish(answer="photo.png has 2048 bytes; the number is in size.txt."),
                "",
            ),
        ),
    ),
)
READING = BotSpec(
    name="reading",
    summary="answers questions about a folder; nothing in it can change",
    prompt=(
        "You answer questions about the user's files in {workdir}, your current folder, using a bash shell on Linux."
        " You cannot change the files. One action at a time; look at each result before the next. There is no network"
        " and nobody to ask. When you know, finish with the answer itself."
    ),
    tools=("shell", "finish"),
    folder_mode="ro",
)
BUILT_IN: dict[str, BotSpec] = {spec.name: spec for spec in (WRITING, READING)}
