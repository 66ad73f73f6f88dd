"""The Shell bot: a model that lives in a shell, has a goal and may rewrite itself. It ends only when it is stopped."""

from stockade.bots.spec import BotSpec
from stockade.core.actions import ReadFile, Shell, Step, WriteFile
from stockade.core.budget import Budget
from stockade.core.events import Autonomy

DEFAULT_GOAL = "Become the best programmer in the world!"

SHELL = BotSpec(
    name="shell",
    summary="lives in a shell with a goal of its own, until you stop it; may rewrite its goal, prompt and sampling",
    prompt=(
        "You are alone in a bash shell on Linux and live in it. The folder {workdir} is yours and is your current"
        " folder. Nobody reads your answers and nobody will reply: what you do is what counts. The first message is"
        " your goal. Each turn do one or a few actions, look at what came of them, then decide what is next. There is"
        " no network unless a command shows that there is, and no interactive program works. Never do again what has"
        " just given nothing new. You are never finished: when one thing is done, choose the next that serves your"
        " goal."
    ),
    tools=("shell", "write_file", "read_file"),
    folder_mode="rw",
    needs_folder=True,
    budget=Budget(max_turns=0, timeout_s=0.0),
    settings={"answers": "list"},
    autonomous=True,
)

INTRO: tuple[Step, ...] = (
    Step(action=Shell(command="ls -la"), comment="What is here?"),
    Step(action=Shell(command="git init -q && echo done"), comment="I keep my work in git."),
    Step(action=WriteFile(path="test.txt", content="This is a test.\n"), comment="I can write files."),
    Step(action=ReadFile(path="test.txt"), comment="And read them."),
    Step(action=Shell(command="git status --short"), comment="What does git say?"),
    Step(action=Shell(command="git add test.txt && git status --short"), comment="Now git knows it."),
)
"""What pocket-ASI does before a model's first turn: one action of each kind, done for real."""

_OWN = {
    "goal": "{workdir}/goal: your goal, in place of the first message",
    "prompt": "{workdir}/system.md: your own part of this prompt: what you want to be told and not forget",
    "sampling": '{workdir}/config.json: how you are sampled, as {"temperature": 0.8, "top_p": 0.95}',
}

TEMPLATE: dict[str, str] = {
    "config.json": '{"temperature": 1.0}\n',
    "system.md": (
        "Work in small steps, each a program or a note that is there afterwards.\n"
        "Write here what you have learned, and keep it short.\n"
    ),
    "main.py": 'from pathlib import Path\n\nPath("output.txt").write_text("Hello from main.py\\n")\n',
}
"""A new workspace."""


def own_part(may: Autonomy | None, workdir: str) -> tuple[str, ...]:
    """What the bot is told of the files by which it rules itself; nothing when it has none."""
    lines = [f"- {words.replace('{workdir}', workdir)}" for name, words in _OWN.items() if getattr(may, name, False)]
    first = "You rule yourself by these files; what you write there holds from your next turn on:"
    return ("\n".join([first, *lines]),) if lines else ()
