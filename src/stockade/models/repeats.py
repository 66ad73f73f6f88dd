"""An answer that says one thing over and over is noticed while it is told.

Small models fall into that at temperature 0, and nobody should wait for the rest of a thousand tokens of it.
"""

LEAST_CHARS = 1200
"""As much is said of nothing but repetition before it counts: a line of dashes or a row of zeros is none."""
LEAST_TIMES = 12
MAX_PERIOD = 250
_LOOK_EVERY = 200


class Repeats:
    """Of one stream of text, thinking or arguments of a call."""

    def __init__(self) -> None:
        self._tail, self._unseen = "", 0

    def hear(self, text: str) -> bool:
        """Takes what is new. Whether all that was said lately is one thing, again and again."""
        self._tail = (self._tail + text)[-max(LEAST_CHARS, LEAST_TIMES * MAX_PERIOD) :]
        self._unseen += len(text)
        if self._unseen < _LOOK_EVERY or len(self._tail) < LEAST_CHARS:
            return False
        self._unseen = 0
        return any(_has_period(self._tail, length) for length in range(1, MAX_PERIOD + 1))


def _has_period(text: str, length: int) -> bool:
    """Whether its end repeats every `length` characters, for long enough."""
    wanted = max(LEAST_CHARS, LEAST_TIMES * length)
    if len(text) < wanted or text[-1] != text[-1 - length]:
        return False
    end = text[-wanted:]
    return end[length:] == end[:-length]
