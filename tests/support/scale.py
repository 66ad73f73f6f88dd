"""How often kills and examples are tried. `make test` 0.1, `make test-all` 1, `make test-long` 20."""

import os

SCALE = float(os.environ.get("STOCKADE_TEST_SCALE", "1"))


def scaled(count: int) -> int:
    """`count` times STOCKADE_TEST_SCALE; below 1, never fewer than 10, or than `count` where that is less."""
    return max(min(count, 10), round(count * SCALE))
