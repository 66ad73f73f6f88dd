"""What `stockade doctor` found: plain data, made by the sandboxes and drawn by the command line."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cell of the doctor. `required`: without it no sandbox is started here. `tried`: what was done to know.

    `backend` is None for what is the machine's. Names of one kind are alike for all backends: `sandbox`, `limit: ...`,
    `escape: ...`.
    """

    backend: str | None = None
    name: str
    tried: str
    held: bool
    required: bool = True
    cause: str | None = None
    way_out: str | None = None
