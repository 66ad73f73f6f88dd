"""What makes a bot: its role, the tools it may use, what it may do to a folder. A new bot is one of these."""

from typing import Any

from pydantic import Field

from stockade.bots.model_profiles import FILES, spelled_out
from stockade.core.budget import Budget
from stockade.core.data import Data
from stockade.core.model_options import LOCAL_ANSWER_TOKENS
from stockade.loop.run_context import Bot
from stockade_sandbox.policy import FolderMode


class BotSpec(Data, arbitrary_types_allowed=True):
    """A kind of bot. `prompt` is its role; the answer protocol adds how to answer.

    `shows_folder`: the prompt holds what is in the first folder. `autonomous`: it has no end, and rules itself by files
    in its folder (plugins/shell_bot/bot.py). `budget`: None is that of its model's profile (model_profiles.py).
    """

    name: str
    summary: str
    prompt: str
    shows_folder: bool = False
    tools: tuple[str, ...] = ("shell", FILES, "finish")
    folder_mode: FolderMode = "overlay"
    authorised: bool = False
    budget: Budget | None = None
    answers: str | None = None
    """The only spelling of answers that it reads; None where the user may choose one."""
    local_answer_tokens: int = LOCAL_ANSWER_TOKENS
    """Bounds an answer of a model on this machine, where the user does not."""
    file: str | None = None
    """Where it was read from; None for a built-in one."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """RunSpec, by key, as they are where the user sets nothing."""
    autonomous: bool = False
    bot: Bot = Field(default_factory=Bot, exclude=True)
    """What drives its runs."""

    @property
    def all_tools(self) -> tuple[str, ...]:
        """Its tools by name, with all file actions that a model could be offered."""
        return spelled_out(self.tools, self.folder_mode)


WRITING = BotSpec(
    name="writing",
    summary="changes files in a folder; you review before anything is kept",
    prompt=(
        "You are a careful engineer working in a bash shell on Linux. The folder {workdir} holds the user's files and"
        " is your current folder. Do the task with the fewest actions, one at a time, and look at each result before"
        " the next. There is {network}, no sudo, no editor and {nobody}: never use interactive programs."
        " When the task is done and you have checked it, finish with a short answer."
    ),
    shows_folder=True,
)
READING = BotSpec(
    name="reading",
    summary="answers questions about a folder; nothing in it can change",
    prompt=(
        "You answer questions about the user's files in {workdir}, your current folder, using a bash shell on Linux."
        " You cannot change the files. One action at a time; look at each result before the next. There is {network}"
        " and {nobody}. When you know, finish with the answer itself."
    ),
    tools=("shell", FILES, "finish"),
    folder_mode="ro",
)
