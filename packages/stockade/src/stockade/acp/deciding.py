"""What becomes of a run's changes: shown as diffs with a question, applied as they were shown, kept, or thrown away."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
from acp.helpers import start_tool_call, tool_diff_content, update_agent_message_text, update_tool_call
from acp.schema import PermissionOption, ToolCallLocation, ToolCallUpdate, ToolKind
from anyio import to_thread

from stockade import changes
from stockade.acp.outbox import Outbox
from stockade.acp.story import Story, some
from stockade.acp.wording import words
from stockade.changes import Applied, Pending
from stockade.core.errors import ChangedOnHost, StockadeError
from stockade.core.events import RunEvent
from stockade.core.ports import Reviewer
from stockade.core.secrets import Redactor
from stockade.core.text import one_line
from stockade_sandbox.errors import ReviewOutdated
from stockade_sandbox.results import Change, FolderLayer, Moved, what_changed

MAX_FILES, MAX_CHARS = 500, 1_000_000
"""Of diffs in one question; what is beyond is named."""
_APPLY = PermissionOption(option_id="apply", name="Apply", kind="allow_once")
_KEEP = PermissionOption(option_id="keep", name="Not now", kind="reject_once")
_DISCARD = PermissionOption(option_id="discard", name="Discard", kind="reject_always")
_THESE = PermissionOption(option_id="apply", name="Apply these too", kind="allow_once")
_LEAVE = PermissionOption(option_id="keep", name="Leave them out", kind="reject_once")
_MERGE = PermissionOption(option_id="merge", name="Merge both sides", kind="allow_once")


@dataclass(slots=True)
class Desk:
    """Of one run. `record` puts an event on record, from a thread."""

    outbox: Outbox
    story: Story
    redactor: Redactor
    reviewer: Reviewer
    layers: Sequence[FolderLayer]
    record: Callable[[RunEvent], None]

    async def put(self) -> bool:
        """The question, until it is answered; whether all is to be discarded. What is no clear yes changes nothing."""
        problem = ""
        while work := await to_thread.run_sync(self._pending):
            places = ", ".join(one.layer.host for one in work)
            count = some([change.path for one in work for change in one.changes])
            title = one_line(f"apply {count} to {places}", 200)
            content, locations = await to_thread.run_sync(self._shown, work, problem)
            # Some editors show nothing but the diffs of an edit.
            kind: ToolKind = "edit" if all(one.type == "diff" for one in content) else "other"
            number = self.story.new_id("changes")
            self.outbox.put(
                start_tool_call(number, title, kind=kind, status="pending", content=content, locations=locations)
            )
            asked = ToolCallUpdate(tool_call_id=number, title=title, kind=kind, content=content, locations=locations)
            chosen = await self.outbox.choose(asked, (_APPLY, _KEEP, _DISCARD))
            if chosen != "apply":
                word = "discarded" if chosen == "discard" else "kept, not applied"
                self.outbox.put(update_tool_call(number, title=f"{count} {word}", status="failed"))
                return chosen == "discard"
            done, problem = await self._apply(await self._agreed(work))
            status: Any = "failed" if problem else "completed"
            self.outbox.put(update_tool_call(number, title=problem or f"applied {some(done.paths)}", status=status))
            self.outbox.put(*map(update_agent_message_text, _left_out(done)))
            if not problem:
                return False
        return False

    async def _agreed(self, work: list[Pending]) -> list[Pending]:
        """With what of it runs by itself on this machine, where the user wants that too."""
        held = {_shown_at(one, it): it for one in work for it in one.changes if it.held and not it.refused}
        if not held:
            return work
        lines = "\n".join(f"- {path}: {change.flagged}" for path, change in held.items())
        call = ToolCallUpdate(
            tool_call_id=self.story.new_id("held"), title="apply what runs by itself on this machine too", kind="edit",
            status="pending", content=[words(lines)],
        )  # fmt: skip
        if await self.outbox.choose(call, (_THESE, _LEAVE)) != "apply":
            return work
        return [replace(one, changes=tuple(replace(it, held=False) for it in one.changes)) for one in work]

    async def _apply(self, work: list[Pending]) -> tuple[Applied, str]:
        """What was done, and what is wrong where the question is to be put again."""
        done, merge = Applied(), False
        while True:
            try:
                with anyio.CancelScope(shield=True):  # a half that is cancelled would not be on record
                    await to_thread.run_sync(self._carry_out, work, done, merge)
            except ReviewOutdated as error:
                return done, f"{error.message}: this is how it is now"
            except ChangedOnHost as error:
                if merge or not await self._merges(error):
                    self.outbox.put(update_agent_message_text(f"Nothing was applied: {error.message}\n"))
                    return done, ""
                merge = True
                work = await to_thread.run_sync(self._still, work)
                continue
            return done, ""

    async def _merges(self, error: StockadeError) -> bool:
        call = ToolCallUpdate(
            tool_call_id=self.story.new_id("merge"), title="both sides changed the same files", kind="edit",
            status="pending", content=[words(error.message)],
        )  # fmt: skip
        return await self.outbox.choose(call, (_MERGE, _KEEP)) == "merge"

    def _carry_out(self, work: list[Pending], done: Applied, merge: bool) -> None:
        changes.apply(self.reviewer, work, done, flagged=False, merge=merge, record=changes.recording(self.record))

    def _still(self, work: list[Pending]) -> list[Pending]:
        """What of it was not applied before the conflict."""
        return [one for one in work if self.reviewer.changes(one.layer)]

    async def undo(self) -> str:
        """What was applied is taken back; a sentence for the user."""

        def take_back() -> Moved:
            return changes.move(self.reviewer, self.layers, back=True, record=changes.recording(self.record))

        with anyio.CancelScope(shield=True):
            moved = await to_thread.run_sync(take_back)
        lines = [f"- {path} stays: {why}" for path, why in moved.left.items()]
        head = f"undone: {some(moved.paths)}" if moved.paths else "nothing was applied that could be undone"
        return "\n".join((head, *lines))

    def _pending(self) -> list[Pending]:
        work = changes.pending(self.reviewer, self.layers)
        return [replace(one, reviewed=self.reviewer.digests(one.layer, one.changes)) for one in work]

    def _shown(self, work: list[Pending], problem: str) -> tuple[list[Any], list[ToolCallLocation]]:
        diffs, lines, room = list[Any](), list[str](), MAX_CHARS
        locations = [ToolCallLocation(path=_host_path(one, it)) for one in work for it in one.changes[:MAX_FILES]]
        for one, change in _each(work):
            sides = None if change.refused or len(diffs) >= MAX_FILES else self._sides(one, change)
            if sides is not None and (room := room - len(sides[0]) - len(sides[1])) >= 0:
                diffs.append(tool_diff_content(_host_path(one, change), sides[1], sides[0]))
            else:
                lines.append(f"- {change.kind} {_shown_at(one, change)} ({what_changed(change)})")
            if note := change.refused or change.flagged:
                what = "cannot be applied" if change.refused else "look at it first"
                lines.append(f"- {what}: {_shown_at(one, change)}: {note}")
        text = "\n".join(filter(None, (problem, *lines)))
        return [*([words(text)] if text else []), *diffs], locations

    def _sides(self, one: Pending, change: Change) -> tuple[str, str] | None:
        """Before and after, without secrets; None where that is not shown as two texts.

        Of a new file the first is empty, and not absent: an editor (Toad 0.6.20) leaves out diffs without it.
        """
        if (texts := self.reviewer.texts(one.layer, change)) is not None:
            before, after = texts
        elif change.kind == "added" and (content := self.reviewer.content(one.layer, change)) is not None:
            before, after = b"", content
        else:
            return None
        hide = self.redactor.text
        return hide(before.decode(errors="replace")), hide(after.decode(errors="replace"))


def _each(work: list[Pending]) -> Iterator[tuple[Pending, Change]]:
    return ((one, change) for one in work for change in one.changes)


def _host_path(one: Pending, change: Change) -> str:
    return f"{one.layer.host}/{change.path}"


def _shown_at(one: Pending, change: Change) -> str:
    return one_line(_host_path(one, change), 1000)


def _left_out(done: Applied) -> Iterator[str]:
    for change in done.refused:
        yield f"- not applied: {one_line(change.path, 1000)}: {change.refused}\n"
    for change in done.held:
        yield f"- not applied: {one_line(change.path, 1000)}: {change.flagged}\n"
    for path, reason in done.conflicts.items():
        yield f"- not applied: {one_line(path, 1000)}: {reason}\n"
