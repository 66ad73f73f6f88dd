"""Every command that decides on changes, killed at every step that it comes to; the next command ends it.

The steps are those that an undisturbed command came to: named ones of the product, and between them what Python did to
files. After the next command the folder must be one of its two legal trees, the one that the record says; the record
must be readable, and nothing may be left over. How many kills there are: tests/support/worlds.py.
"""

import json
import os
import shlex
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stockade.testing import say
from tests.support.worlds import (
    BASE,
    BENEATH,
    KILLS,
    STRATEGIES,
    Beneath,
    Ended,
    Strategy,
    World,
    chosen,
    give,
    listing,
    note_kill,
    tree_hash,
    world,
)

MANY = 120
BOT = """
echo more >> notes.txt; rm gone.txt; chmod 600 mode.txt; rm -r old; rm becomes_link; ln -s notes.txt becomes_link
rm becomes_folder; mkdir becomes_folder; echo in > becomes_folder/in; rm -r becomes_file; echo file > becomes_file
ln -sfn keep.txt link; echo more >> marked.txt; rm twin2; mkdir -p fresh/deep; echo x > fresh/x; echo z > fresh/deep/z
: > empty; mv moves moved; chmod 750 folder; printf more >> big; echo more >> many/f7; rm many/f8 many/f9
echo new > many/g; echo odd > "$(printf 'odd\\377 name')"; echo x >> folder/x; rm -r emptied/*
""".strip().replace("\n", "; ")
EACH = {
    "opened",
    "staged",
    "decided",
    "recorded",
    "remove",
    "removed",
    "place",
    "placed",
    "finished",
    "done",
    "cleaned",
}
LAYER = {"discard", "discarded"}
NAMED = {"discard": LAYER, "apply": EACH | LAYER, "undo": EACH, "redo": EACH, "part": EACH}
"""What each command must come to (stockade_sandbox/overlay/journal.py); `redo` is the apply of what was undone, `part`
of some of it."""
PART = ("notes.txt", "gone.txt", "many", "fresh/deep", "becomes_file")
THEN = {
    "discard": ("discard", "apply", "run"),
    "apply": ("apply", "undo", "run", "discard"),
    "undo": ("undo", "apply", "run"),
    "redo": ("apply", "undo", "run"),
    "part": ("part", "undo", "run"),
}
"""What comes next, in turn."""


def furnish(folder: Path, seed: int) -> None:
    """In another order for each seed: a tmpfs lists the newest first."""
    for name in ("old/sub", "becomes_file", "folder", "many", "emptied"):
        (folder / name).mkdir(parents=True)
    names = ["notes.txt", "gone.txt", "mode.txt", "keep.txt", "moves", "old/a", "old/sub/b", "becomes_link", "twin1",
             "becomes_folder", "becomes_file/x", "marked.txt", "folder/x", "emptied/1", "emptied/2"]  # fmt: skip
    names += [f"many/f{number}" for number in range(MANY)]
    turn = seed * 7 % len(names)
    for name in (*names[turn:], *names[:turn]):
        (folder / name).write_text(f"{name} as it was\n")
    (folder / "big").write_bytes(bytes(range(256)) * 8192)
    (folder / "link").symlink_to("notes.txt")
    (folder / "twin2").hardlink_to(folder / "twin1")
    os.setxattr(folder / "marked.txt", "user.note", b"of the user")
    (folder / "folder/x").chmod(0o640)


@dataclass
class Trials:
    """`old`, `new`: the legal trees."""

    world: World
    where: dict[str, Any]
    old: str = ""
    new: str = ""
    run_id: str = ""

    def furnished(self) -> Path:
        folder = self.world.clear(self.world.folder)
        furnish(folder, self.where["seed"])
        give(folder, self.world.uid)
        return folder

    def run(self, command: str = BOT) -> Ended:
        """A run of the bot; nothing of it is decided."""
        answers = (say("shell", command=command), say("finish", answer="done"))
        script = self.world.base / "script.jsonl"
        self.world.seen(script).write_text("".join(json.dumps({"content": text}) + "\n" for text in answers))
        folder = str(self.world.folder)
        return self.world.call("run", "x", "--folder", folder, "--model", f"scripted/{script}", "--no-input")

    def undecided(self) -> None:
        """A folder as new and a run that changed it."""
        self.furnished()
        ended = self.run()
        assert ended.status == 0, ended
        assert self.world.tree() == self.old, "the run itself changed the folder"
        events = self.record("last")
        (strategy,) = {e["layers"][0]["strategy"] for e in events if e["type"] == "sandbox_started"}
        assert strategy == self.where["strategy"], ended
        self.run_id = events[0]["run_id"]

    def argv(self, command: str) -> tuple[str, ...]:
        verb = "apply" if command in ("redo", "part") else command
        part = [f"--only={path}" for path in PART if command == "part"]
        return ("runs", verb, self.run_id, *(["--flagged"] if verb == "apply" else []), *part)

    def brought_to(self, tree: str) -> None:
        """By apply or undo, whatever was before."""
        ended = self.world.call(*self.argv("apply" if tree == self.new else "undo"))
        assert self.world.tree() == tree, ended

    def record(self, run_id: str) -> list[dict[str, Any]]:
        ended = self.world.call("runs", "show", run_id, "--json")
        assert ended.status == 0, ended
        return [json.loads(line) for line in ended.out.splitlines()]

    def traced(self, command: str) -> Counter[str]:
        ended = self.world.call(*self.argv(command), trace=True)
        assert ended.status == 0, ended
        steps = Counter(ended.out.splitlines())
        assert set(steps) >= NAMED[command], "a step is never come to"
        return Counter({step: count for step, count in steps.items() if "record" not in step.split(".")[0]})

    def kill(self, command: str, step: str, time: int, then: str) -> None:
        note = {**self.where, "command": command, "step": step, "time": time, "then": then}
        killed = self.world.call(*self.argv(command), step=step, time=time)
        assert killed.was_killed, (note, killed)
        ended = self.run(": nothing") if then == "run" else self.world.call(*self.argv(then))
        tree = self.world.tree()
        note["legal"] = {self.old: "old", self.new: "new"}.get(tree, "illegal")
        note_kill(note)
        assert note["legal"] != "illegal", (note, ended, self.differences())
        assert ended.status in (0, 2), (note, ended)  # 2: it was done already, and says so
        if then == "run":  # whoever comes by completes it; the record of the run says so with its next command
            self.world.call(*self.argv(command))
        elif then in ("undo", "discard") and command != "apply":
            assert tree == self.old, (note, ended)
        elif then in ("apply", "part") and command != "discard":
            assert tree == self.new, (note, ended)
        self.check(note)

    def check(self, note: dict[str, Any]) -> None:
        """The folder is what the record says, which reads well, and nothing is left over."""
        kinds = [event["type"] for event in self.record(self.run_id) if event["type"].startswith("changes_")]
        decided = kinds[-1] if kinds else ""
        assert self.world.tree() == (self.new if decided == "changes_applied" else self.old), (note, kinds)
        listed = self.world.call("runs", "list")
        assert self.run_id in listed.out, (note, listed)
        assert not listed.err, (note, listed)
        self.world.call(*self.argv("discard"))
        left = [name for name in self.world.left_behind() if name.startswith(self.run_id)]
        if kinds and decided != "changes_discarded":
            left = [name for name in left if not name.startswith(f"{self.run_id}/0.journal") and name != self.run_id]
        assert left == [], note

    def differences(self) -> list[Any]:
        furnished = self.world.seen(self.world.base / "furnished")
        furnished.mkdir(exist_ok=True)
        furnish(furnished, self.where["seed"])
        give(furnished, self.world.uid)
        return sorted(set(map(repr, listing(self.world.seen(self.world.folder)))) ^ set(map(repr, listing(furnished))))


def reference(folder: Path, uid: int) -> str:
    """What the bot's command makes of the folder when nobody is in between."""
    copy = folder.with_name("reference")
    subprocess.run(["cp", "-a", str(folder), str(copy)], check=True)
    subprocess.run(["sh", "-c", f"cd {shlex.quote(str(copy))} && {BOT}"], check=True, umask=0o022)
    give(copy, uid)
    tree = tree_hash(copy)
    subprocess.run(["rm", "-r", str(copy)], check=True)
    return tree


@pytest.mark.parametrize("seed", range(max(KILLS, 1)))
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("beneath", BENEATH)
def test_a_killed_decision_is_ended_by_the_next_command(beneath: Beneath, strategy: Strategy, seed: int) -> None:
    with world(beneath, strategy, seed) as here:
        trials = Trials(here, {"beneath": beneath, "strategy": strategy, "seed": seed})
        folder = trials.furnished()
        trials.old, trials.new = here.tree(), reference(folder, here.uid)
        for command in ("discard", "apply"):
            trials.undecided()
            for number, (step, time) in enumerate(chosen(trials.traced(command), beneath, seed)):
                trials.undecided()
                trials.kill(command, step, time, THEN[command][(seed + number) % len(THEN[command])])
        trials.undecided()
        trials.brought_to(trials.new)
        for command, before in (("undo", trials.new), ("redo", trials.old)):
            for number, (step, time) in enumerate(chosen(trials.traced(command), beneath, seed)):
                trials.brought_to(before)
                trials.kill(command, step, time, THEN[command][(seed + number) % len(THEN[command])])
            trials.brought_to(trials.old)
        trials.traced("part")
        trials.new = here.tree()
        trials.brought_to(trials.old)
        for number, (step, time) in enumerate(chosen(trials.traced("part"), beneath, seed)):
            trials.brought_to(trials.old)
            trials.kill("part", step, time, THEN["part"][(seed + number) % len(THEN["part"])])


@pytest.mark.parametrize("step", ["staged", "decided", "placed", "done", "discarded"])
def test_an_apply_cut_by_a_power_failure_is_ended_on_another_device(step: str) -> None:
    """The disk as it is at that step comes back under another device number, as loop and overlayfs devices do."""
    with world("ext4", "overlay", 0) as before:
        trials = Trials(before, {"beneath": "ext4", "strategy": "overlay", "seed": 0})
        folder = trials.furnished()
        trials.old, trials.new = before.tree(), reference(folder, before.uid)
        trials.undecided()
        subprocess.run(["sync", "-f", str(before.seen(before.folder))], check=True)
        with before.held(*trials.argv("apply"), step=step):
            disk = before.seen(BASE / "image").read_bytes()
            device = os.stat(before.seen(before.folder)).st_dev
            with world("ext4", "overlay", 0, disk) as trials.world:
                assert os.stat(trials.world.seen(trials.world.folder)).st_dev != device
                ended = trials.world.call(*trials.argv("apply"))
                assert trials.world.tree() == trials.new, ended
                trials.check({**trials.where, "step": step})
