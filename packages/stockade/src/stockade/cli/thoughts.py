"""What a Planner thinks, as its person sees it before saying yes."""

from rich.text import Text

from stockade.cli.clipped import coloured
from stockade.cli.safe import one_line
from stockade.core.actions import Thoughts
from stockade.core.events import RunStarted

_STYLE = "italic cyan"


def profile_name(started: RunStarted) -> str:
    """How the bot of a run is called; empty for one without a profile."""
    profile = started.options.get("profile")
    name = profile.get("name") if isinstance(profile, dict) else None
    return one_line(name, 60) if isinstance(name, str) else ""


def drawn(thoughts: Thoughts, name: str, *, whole: bool) -> Text:
    """Its parts by name, those that are empty left out."""
    who = f"{name.upper()} " if name else ""
    parts = [
        _part(f"{who}THOUGHTS", thoughts.text, whole=whole),
        _part("REASONING", thoughts.reasoning, whole=whole),
        _part("PLAN", "\n".join(f"- {one_line(step)}" for step in thoughts.plan), whole=whole, below=True),
        _part("CRITICISM", thoughts.criticism, whole=whole),
        _part("SPEAK", thoughts.speak, whole=whole),
    ]
    return Text("\n").join(part for part in parts if part is not None)


def _part(title: str, text: str, *, whole: bool, below: bool = False) -> Text | None:
    if not text.strip():
        return None
    return Text.assemble((f"{title}:", "bold cyan"), "\n" if below else " ", coloured([(text, _STYLE)], whole=whole))
