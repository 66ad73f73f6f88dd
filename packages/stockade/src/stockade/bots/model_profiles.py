"""What a run is given by the model that it has: its file actions, its bounds, what its opening shows of the folder.

The one table of it; what a user or a bot's own file says goes before. A model that nobody knows the size of is treated
as a large one. Measured: the 1.5B solves 18 of 20 tasks with the shell alone, 15 with write_file beside it.
"""

from collections.abc import Sequence

from stockade.core.budget import Budget
from stockade.core.data import Data
from stockade.core.messages import ModelInfo, billions
from stockade_sandbox.policy import FolderMode

FILES = "files"
"""Among a bot's tools: the file actions, as far as its model's profile has them."""
_READS, _WRITES = ("read_file",), ("write_file", "edit_file")
FILE_ACTIONS = (*_READS, *_WRITES)


class ModelProfile(Data):
    """A row of the table. Times in seconds, 0 is no limit; `attended_s` is that of a run on a terminal. `good_for` is
    told a user who did not choose the model. `hooks` are on for it, where nobody says otherwise.
    """

    name: str
    file_actions: tuple[str, ...]
    max_turns: int
    timeout_s: float
    attended_s: float
    good_for: str = ""
    hooks: tuple[str, ...] = ()

    def budget(self, *, attended: bool) -> Budget:
        return Budget(max_turns=self.max_turns, timeout_s=self.attended_s if attended else self.timeout_s)

    def offered(self, actions: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
        """Those of `actions` that a model of this profile gets; what was `asked` for by its name stays."""
        withheld = {name for name in FILE_ACTIONS if name not in self.file_actions and name not in asked}
        return tuple(name for name in actions if name not in withheld)


SMALL = ModelProfile(
    name="small", file_actions=(), max_turns=20, timeout_s=600.0, attended_s=600.0,
    good_for="A model of this size does small tasks in a shell, offline and private; look at what it did."
    " It is not for repairing programs or for many steps",
    hooks=("small_models",),
)  # fmt: skip
FULL = ModelProfile(name="full", file_actions=FILE_ACTIONS, max_turns=100, timeout_s=3600.0, attended_s=0.0)


def profile_of(info: ModelInfo) -> ModelProfile:
    return SMALL if info.small else FULL


def reason(info: ModelInfo) -> str:
    """Why it is that profile, in words: what is known of the model's size, and who says it."""
    if info.parameters is None:
        return "nobody says how large the model is"
    source = info.sources.get("parameters")
    return f"{billions(info.parameters)} parameters{f' by {source}' if source else ''}"


def spelled_out(tools: Sequence[str], mode: FolderMode) -> tuple[str, ...]:
    """`tools` with FILES as the actions that it stands for; a folder that can only be read has no writing ones."""
    actions = _READS if mode == "ro" else FILE_ACTIONS
    return tuple(one for name in tools for one in (actions if name == FILES else (name,)))
