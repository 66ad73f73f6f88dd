"""Real overlays over real folders, and bash run in them as a bot's would be."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from stockade_sandbox.overlay import Review, prepare_layer
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.results import Change, FolderLayer
from tests.unit.sandboxes.test_folders.pictures import Picture, picture

ORDINARY = 1001
"""The uid of sandboxes in these tests; nobody's."""

_RUN = """
set -eu
if [ -n "$2" ]; then mount -t overlay overlay -o "$2" "$1"; fi
cd "$1"
(set +e; eval "$3") </dev/null >/dev/null 2>&1 || true
echo $$
read -r _
"""
"""Mounts, runs a script, says under which pid the result can be seen, and keeps it until its stdin ends."""


@dataclass
class Bench:
    """A host folder and its layer.

    `how`: `root` (an overlay mounted by root, trusted xattrs), `user` (mounted in a user namespace of an ordinary user,
    userxattr) or `copy`.
    """

    top: Path
    how: str
    review: Review = field(default_factory=Review)
    begun: FolderLayer | None = None

    @property
    def host(self) -> Path:
        return self.top / "host"

    def begin(self) -> FolderLayer:
        base = self.top / "layers"
        base.mkdir(exist_ok=True)
        if self.how == "user":
            subprocess.run(["chown", "-Rh", f"{ORDINARY}:{ORDINARY}", self.host, base], check=True)
        self.begun = prepare_layer(
            FolderRule(host=str(self.host)),
            base,
            sandbox_uid=ORDINARY if self.how == "user" else 0,
            can_overlay=lambda _: "asked to copy" if self.how == "copy" else None,
        )
        if self.how != "copy":
            (self.place / "m").mkdir()
        return self.begun

    @property
    def layer(self) -> FolderLayer:
        return self.begun or self.begin()

    @property
    def place(self) -> Path:
        assert self.layer.layer is not None
        return Path(self.layer.layer)

    def bash(self, script: str, *, look: bool = True) -> Picture:
        """Run a script in the folder; what it then looks like from inside."""
        if self.layer.strategy == "copy":
            return _run([], self.place / "copy", "", script, look)
        options = f"lowerdir={self.host},upperdir={self.place}/upper,workdir={self.place}/work"
        enter = ["unshare", "-m"]
        if self.how == "user":
            os.chown(self.place, ORDINARY, ORDINARY)
            os.chown(self.place / "m", ORDINARY, ORDINARY)
            options += ",userxattr"
            enter = ["setpriv", "--reuid", str(ORDINARY), "--regid", str(ORDINARY), "--clear-groups", "unshare", "-Urm"]
        return _run(enter, self.place / "m", options, script, look)

    def changes(self) -> tuple[Change, ...]:
        return self.review.changes(self.layer)

    def by_path(self) -> dict[str, Change]:
        return {change.path: change for change in self.changes()}

    def kinds(self) -> dict[str, str]:
        return {change.path: change.kind for change in self.changes()}

    def diff(self) -> str:
        return "".join(self.review.unified_diff(self.layer, change) for change in self.changes())

    def apply(self, *paths: str, force: bool = False) -> tuple[str, ...]:
        """The named changes, or all of them."""
        chosen = [change for change in self.changes() if not paths or change.path in paths]
        return self.review.apply(self.layer, chosen, force=force)

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """A file of the host."""
        target = self.host / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        target.chmod(mode)

    def shown(self) -> Picture:
        return picture(str(self.host))


def _run(enter: list[str], folder: Path, options: str, script: str, look: bool) -> Picture:
    argv = [*enter, "bash", "-c", _RUN, "-", str(folder), options, script]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, env={"PATH": os.environ["PATH"]}, cwd="/") as inside:
        assert inside.stdout is not None
        pid = inside.stdout.readline().decode().strip()
        assert pid, "the overlay could not be mounted"
        shown = picture(f"/proc/{pid}/root{folder}") if look else {}
        inside.communicate(b"\n")
    return shown


def times(root: Path) -> dict[str, tuple[int, int]]:
    """mtime and ctime of everything, the root too."""
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in [root, *root.rglob("*")]}
