"""docs/measured/trajectories.md from real runs: `python -m tests.trajectories.page`.

Every trajectory with the plug-in for small models forced on, which is for models of 4 B parameters or fewer.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cli.conftest import Stage
from tests.trajectories.checks import CHECKS
from tests.trajectories.edits import EDITS
from tests.trajectories.reports import REPORTS
from tests.trajectories.run import Played, acts, disturbances, play
from tests.trajectories.trajectory import Trajectory

ALL = (*EDITS, *CHECKS, *REPORTS)
PAGE = Path(__file__).parents[2] / "docs" / "measured" / "trajectories.md"
FORCED = ("-o", "small_models=true")
HEAD = """# Correct runs of strong models, and what the harness adds to them

{count} scripted runs through the real command in the real sandbox (tests/trajectories), each made of correct actions
and written by looking at the list of tools only. On the defaults for a model that nobody knows,
{off} of {count} are disturbed: no refusal, no turn more, no word of ours, and the folder ends as it should.

With the plug-in for small models forced on (`-o small-models=true`; it is on by itself for 4 B parameters or fewer
only), {on} of {count} are disturbed: an action refused, a finish sent back, a turn more, or another end. Words behind
observations, which a strong model may leave aside, are counted apart.

Made by `python -m tests.trajectories.page` at {commit}.

| trajectory | turns | disturbed by the plug-in | its words |
|---|---|---|---|
"""


def forced(trajectory: Trajectory, stage: Stage) -> tuple[list[str], list[str]]:
    """With the plug-in on: what it stood in the way of, and the rules whose words stood behind an observation."""
    played = play(trajectory, stage, *FORCED)
    words = [words["rule"] for event in acts(played, "action_finished") for words in event["words"]]
    found = [one for one in disturbances(trajectory, played) if not one.startswith(("words: ", "hook_ran: "))]
    return found + _end(trajectory, played), words


def _end(trajectory: Trajectory, played: Played) -> list[str]:
    ended = acts(played, "run_finished")[-1]
    if (ended["status"], ended["answer"]) != ("done", trajectory.answer):
        return [f"it ended {ended['status']} with {ended['answer']!r}"]
    return [] if played.changed == trajectory.after else ["the folder is not as it should be"]


def main() -> None:
    off, on, lines = 0, 0, []
    for trajectory in ALL:
        with tempfile.TemporaryDirectory() as folder:
            plain = play(trajectory, stage_in(Path(folder)))
            off += bool(disturbances(trajectory, plain) or _end(trajectory, plain))
        with tempfile.TemporaryDirectory() as folder:
            disturbed, words = forced(trajectory, stage_in(Path(folder)))
            on += bool(disturbed)
        shown = "; ".join(one.replace("|", "\\|").replace("\n", " ")[:300] for one in disturbed)
        counted = ", ".join(f"{rule} {words.count(rule)}" for rule in dict.fromkeys(words))
        lines.append(f"| {trajectory.name} | {len(trajectory.turns)} | {shown} | {counted} |\n")
        sys.stdout.write(lines[-1])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(HEAD.format(count=len(ALL), off=off, on=on, commit=commit.strip()) + "".join(lines))


def stage_in(folder: Path) -> Stage:
    """A home of its own, as the tests have it."""
    home, demo = folder / "home", folder / "demo"
    for name, place in (
        ("CONFIG", ".config"),
        ("STATE", ".local/state"),
        ("DATA", ".local/share"),
        ("CACHE", ".cache"),
    ):
        os.environ[f"XDG_{name}_HOME"] = str(home / place)
    demo.mkdir(parents=True)
    (home / "run").mkdir(parents=True, mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(home / "run")
    (demo / "data.csv").touch()
    return Stage(folder, demo, home)


if __name__ == "__main__":
    main()
