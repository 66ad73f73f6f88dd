"""How long a server may leave a question without an answer, and when its stream has stalled."""

from stockade.core.data import Data


class HttpTimes(Data):
    """Seconds. `first_byte_s`, until the first event, is long: a local model reads its whole prompt before it.

    `idle_s` bounds silence after that, and events that bring nothing of an answer; `alive_s` bounds mere signs of life.
    `patience_s`: a server that wants to be asked again only later than that is not waited for.
    """

    connect_s: float = 10.0
    first_byte_s: float = 900.0
    idle_s: float = 120.0
    alive_s: float = 1800.0
    probe_s: float = 5.0
    retries: int = 4
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    patience_s: float = 120.0


class Stall:
    """The deadline of one stream. Times are those of one monotonic clock."""

    def __init__(self, times: HttpTimes, now: float) -> None:
        self._times, self._begun, self._brought = times, False, now
        self.patience_s = times.first_byte_s
        self.deadline = now + self.patience_s

    def heard(self, now: float, *, events: bool, brought: bool) -> float:
        """The deadline after these bytes. `events`: there were some, pings not counted; else they are comments or a
        part of an event. `brought`: with text, thinking or a call in them.
        """
        if events and not self._begun:
            self._begun, self.patience_s, brought = True, self._times.idle_s, True
        if brought:
            self._brought = now
        if brought or not events:
            self.deadline = min(now + self.patience_s, self._brought + max(self._times.alive_s, self.patience_s))
        return self.deadline
