"""`stockade apply --commit`: what was applied, as a git commit."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stockade import git
from stockade.changes import RunFacts
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import one_line, some
from stockade.core.errors import UsageError
from stockade_sandbox.git_links import is_repository
from stockade_sandbox.policy import WORKSPACE
from stockade_sandbox.results import FolderLayer

_SUBJECT_CHARS = 72
_OWN_SHOWN = 300


@dataclass
class Commit:
    """What `--commit` asks for: on the current branch, or on a new one. Checked before anything is applied.

    `own`: by folder, what of the paths held edits of the user's own then that were not committed.
    """

    message: str | None
    branch: str | None
    wanted: bool
    own: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.wanted and (self.message is not None or self.branch is not None):
            raise UsageError("-m and --branch are for --commit", "add --commit")

    def check(self, layers: Iterable[FolderLayer]) -> None:
        for layer in self._work_trees(layers):
            if layer.layer is not None:
                git.check_commit(Path(layer.host), self.branch)

    def look(self, layers: Iterable[FolderLayer], paths: Iterable[str]) -> None:
        """Before these are applied."""
        for layer in self._work_trees(layers):
            if names := _inside(layer, paths):
                self.own[layer.host] = git.uncommitted(Path(layer.host), names)

    def make(self, found: RunFacts, paths: Iterable[str]) -> dict[str, str]:
        """One in each folder that something was written to: its name by folder."""
        made = dict[str, str]()
        for layer in self._work_trees(found.layers):
            names = _inside(layer, paths)
            done = git.commit(Path(layer.host), names, self._words(found), self.branch) if names else None
            if done is not None:
                made[layer.host] = done.name
                ignored = f"; {done.ignored} that ignore files name are not in it" if done.ignored else ""
                say(f"committed {done.name[:12]} on {one_line(done.branch)}: {some(done.files, 'file')}{ignored}")
                if own := sorted(self.own.get(layer.host, frozenset()).intersection(names)):
                    say(f"your own edits that were not committed are in it too: {one_line(', '.join(own), _OWN_SHOWN)}")
            elif names:
                say(f"there was nothing to commit in {one_line(layer.host)}")
        return made

    def _work_trees(self, layers: Iterable[FolderLayer]) -> list[FolderLayer]:
        """Not the repository of a worktree, which is a layer too."""
        return [layer for layer in layers if self.wanted and not is_repository(Path(layer.host))]

    def _words(self, found: RunFacts) -> str:
        started = found.started
        assert started is not None
        words = self.message if self.message is not None else one_line(started.task, _SUBJECT_CHARS)
        return f"{words.rstrip()}\n\nStockade-Run: {started.run_id}\n"


def _inside(layer: FolderLayer, paths: Iterable[str]) -> list[str]:
    """Those of these paths, as they are shown, that are of this folder, as they are called in it."""
    if layer.inside == WORKSPACE:
        return [path for path in paths if not path.startswith("/")]
    prefix = f"{layer.inside}/"
    return [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]
