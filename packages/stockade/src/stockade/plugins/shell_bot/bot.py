"""The Shell bot: a model that lives in a shell, has a goal and may rewrite itself by files in its folder.

It lives until its budget is used up or somebody stops it: its hook tells it when it repeats itself, and never ends its
run, refuses an action or takes a tool away (docs/shell.md).
"""

from stockade.core.actions import ReadFile, Shell, Step, WriteFile
from stockade.core.budget import Budget
from stockade.core.events import Autonomy, RunStarted, SelfConfigChanged
from stockade.core.messages import Sampling
from stockade.extend import AddMessage, Bot, BotSpec, Ending, Hook, HookContext, RunContext, rounds
from stockade.plugins.shell_bot.own_files import OwnFiles, over

DEFAULT_GOAL = "Become the best programmer in the world!"

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


SAY_AFTER = 2
"""Equal rounds in a row after which it is told, and sampled warmer."""
_WARMER_STEP, _MOST_WARM, _LEAST_WARM = 0.15, 1.5, 0.7
_PENALTY_STEP, _MOST_PENALTY, _PENALIZED_TOKENS = 0.25, 2.0, 1024


class ShellBotRules(Hook):
    """`may`: what it may set itself. `folder`: where its own files are, inside."""

    name = "shell_bot"

    def __init__(self, may: Autonomy, folder: str) -> None:
        self.may, self.folder = may, folder

    async def before_turn(self, ctx: HookContext) -> AddMessage | None:
        turn = ctx.state.turns + 1
        files = OwnFiles(ctx.sandbox, self.folder, self.may, ctx.record.context.window)
        found = await files.read(turn, ctx.clock.now(), ctx.state.own)
        if not _same(found, ctx.state.own):
            await ctx.add(found)
        count = rounds(ctx.state.done)
        told = any(one.source == self.name and one.turn + 1 >= turn for one in ctx.state.injected[-2:])
        if count < SAY_AFTER or told:
            return None
        return AddMessage(f"The same action has given the same result {count} times in a row. Do something else now.")

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        """What it has set itself, unless its answers cannot be read with that; warmer while it repeats itself."""
        state = ctx.state
        if state.own is not None and not state.unreadable:
            sampling = over(sampling, state.own.sampling)
        count = rounds(state.done)
        if count < SAY_AFTER:
            return sampling
        warm = max(sampling.temperature or 0.0, _LEAST_WARM) + _WARMER_STEP * count
        penalty = (sampling.presence_penalty or 0.0) + _PENALTY_STEP * count
        other = {
            "temperature": max(sampling.temperature or 0.0, min(_MOST_WARM, warm)),
            "presence_penalty": min(_MOST_PENALTY, penalty),
            "repeat_last_n": _PENALIZED_TOKENS,
            "seed": None,
        }
        return sampling.model_copy(update=other)


def _same(now: SelfConfigChanged, before: SelfConfigChanged | None) -> bool:
    last = before or SelfConfigChanged(at=now.at, turn=now.turn)
    return now == last.model_copy(update={"at": now.at, "turn": now.turn})


class ShellBot(Bot):
    """Its folder is its own: the loop, ruled by its files, behind six scripted actions where `intro` is on."""

    def told(self, started: RunStarted) -> tuple[str, ...]:
        """The files by which it rules itself; nothing when it has none."""
        may, workdir = started.autonomy, started.policy.workdir
        lines = [
            f"- {words.replace('{workdir}', workdir)}" for name, words in _OWN.items() if getattr(may, name, False)
        ]
        first = "You rule yourself by these files; what you write there holds from your next turn on:"
        return ("\n".join([first, *lines]),) if lines else ()

    def hooks(self, started: RunStarted) -> tuple[Hook, ...]:
        return (ShellBotRules(started.autonomy, started.policy.workdir),) if started.autonomy is not None else ()

    async def run(self, ctx: RunContext) -> Ending:
        may = ctx.started.autonomy
        return await ctx.loop(INTRO if may is not None and may.intro else ())


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
    bot=ShellBot(),
)
