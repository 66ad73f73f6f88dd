"""What a session tells its editor, in order; and how the editor is asked."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from acp import RequestError
from acp.schema import AllowedOutcome, PermissionOption, ToolCallUpdate

from stockade.acp.wording import say

if TYPE_CHECKING:
    from acp import Client

_MANY, _FEW = 1000, 100


class Outbox:
    """Of one session. `full` hears when the editor does not keep up (True), and when it has again."""

    def __init__(self, client: "Client", session_id: str) -> None:
        self.client, self._session_id = client, session_id
        self.full: Callable[[bool], None] = lambda full: None
        self._waiting: deque[Any] = deque()
        self._news, self._empty = anyio.Event(), anyio.Event()
        self._asked: set[anyio.CancelScope] = set()
        self._held = False

    def put(self, *updates: Any) -> None:
        self._waiting.extend(updates)
        if self._waiting:
            self._empty = anyio.Event() if self._empty.is_set() else self._empty
            self._news.set()
        self._weigh()

    def _weigh(self) -> None:
        if self._held != (held := len(self._waiting) > (_FEW if self._held else _MANY)):
            self._held = held
            self.full(held)

    async def send(self) -> None:
        """Until it is cancelled."""
        while True:
            while self._waiting:
                try:
                    await self.client.session_update(session_id=self._session_id, update=self._waiting[0])
                except ConnectionError:  # the end of the editor is heard elsewhere
                    self._waiting.clear()
                    break
                self._waiting.popleft()
                self._weigh()
            self._empty.set()
            self._news = anyio.Event()
            await self._news.wait()

    async def flushed(self) -> None:
        """All that was put so far was sent."""
        if self._waiting:
            await self._empty.wait()

    async def choose(self, call: ToolCallUpdate, options: Sequence[PermissionOption]) -> str | None:
        """The id of the option that the user took; None for none of them, and when the turn is cancelled."""
        await self.flushed()
        with anyio.CancelScope() as scope:
            self._asked.add(scope)
            try:
                reply = await self.client.request_permission(
                    session_id=self._session_id, tool_call=call, options=list(options)
                )
            except (RequestError, ConnectionError, ValueError) as error:
                say(f"session {self._session_id}: the editor could not ask: {error}")
                return None
            finally:
                self._asked.discard(scope)
            chosen = reply.outcome.option_id if isinstance(reply.outcome, AllowedOutcome) else None
            return chosen if chosen in [one.option_id for one in options] else None
        return None

    def stop_asking(self) -> None:
        """What the user is being asked has no answer any more."""
        for scope in self._asked:
            scope.cancel()
