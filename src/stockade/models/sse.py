"""Server-sent events, read incrementally. https://html.spec.whatwg.org/multipage/server-sent-events.html

Lenient where servers are: a missing last blank line still gives the event. Only `data` is kept.
"""

MAX_EVENT_BYTES = 16 * 1024**2


class SseParser:
    """Feed it bytes as they arrive; it gives the data of each finished event. ValueError when one is too large."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._line: list[bytes] = []
        self._data: list[str] = []
        self._held = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[str]:
        """The events that this chunk ends."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        events: list[str] = []
        for piece in chunk.splitlines(keepends=True):
            self._held += len(piece)
            if self._held > self._max:
                raise ValueError(f"an event of more than {self._max} bytes")
            self._line.append(piece)
            if piece.endswith((b"\n", b"\r")):
                self._end_line(events)
        return events

    def close(self) -> list[str]:
        """What was not ended by a blank line."""
        events: list[str] = []
        self._end_line(events)
        self._end_event(events)
        return events

    def _end_line(self, events: list[str]) -> None:
        line = b"".join(self._line).rstrip(b"\r\n").decode(errors="replace")
        self._line.clear()
        if self._first:
            line = line.removeprefix("\ufeff")
            self._first = False
        if not line:
            self._end_event(events)
            return
        field, _, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
        elif not self._data:
            self._held = 0

    def _end_event(self, events: list[str]) -> None:
        if self._data:
            events.append("\n".join(self._data))
        self._data.clear()
        self._held = 0
