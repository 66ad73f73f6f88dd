"""Command lines that look like reading, and run a program, write a file or change what names mean in the shell; and
some that are nearly that, or that nobody can read.
"""

from pathlib import Path

HOSTILE = (
    *(Path(__file__).parents[1] / "data" / "hostile_lines.txt").read_text().splitlines(),
    "ls\x00touch x",
    "ls\rtouch x",
    "ls\x0btouch x",
    "ls\xa0-la",
    "ls\u2028touch x",
    "ls\x7f",
    "echo '\x01'",
    "ls \ud800",
    "cat <<E\n$(touch x)\nE",
    'echo "a\\\n$(touch x)"',
    "ec\\\nho a",
    "echo a\n`touch x`",
    "ls \\\n -la",
)
