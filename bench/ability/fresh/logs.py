"""Log files: the end, one day, a span of time, the slowest, what never finished."""

from bench.ability.checks import every, lists, says, unchanged
from bench.ability.task import Task

_BUILD = tuple(f"step {number}: {'linking' if number > 20 else 'compiling'} part{number}.o" for number in range(1, 27))
_BACKUP = (
    "2026-03-13 02:00:00 backup of /home begins",
    "2026-03-13 02:14:31 backup of /home ends, 4180 files",
    "2026-03-14 02:00:00 backup of /home begins",
    "2026-03-14 02:03:12 warning: /home/uma/.cache left out",
    "2026-03-14 02:15:09 backup of /home ends, 4203 files",
    "2026-03-15 02:00:00 backup of /home begins",
    "2026-03-15 02:13:58 backup of /home ends, 4207 files since 2026-03-01",
)
_DOOR = (
    ("09:41", "badge 112 in"), ("09:58", "badge 340 in"), ("10:00", "badge 207 in"), ("10:12", "badge 112 out"),
    ("10:29", "badge 415 in"), ("10:30", "badge 112 in"), ("10:47", "badge 340 out"), ("11:05", "badge 207 out"),
)  # fmt: skip
_CALLS = """12:01:03 GET /login 200 48ms
12:01:09 GET /basket 200 131ms
12:01:17 POST /pay 201 962ms
12:02:20 GET /search 200 407ms
12:02:41 GET /basket 200 95ms
12:03:02 GET /help 200 1530ms
12:03:30 GET /search 200 388ms
"""
_WORKER = """06:00:00 job 31 started
06:00:04 job 32 started
06:00:09 job 31 finished
06:01:00 job 33 started
06:01:20 job 34 started
06:01:52 job 34 finished
06:02:10 job 35 started
06:02:11 job 32 finished
06:03:00 job 35 finished
"""


def _door(*which: tuple[str, str]) -> tuple[str, ...]:
    return tuple(f"2026-03-16 {time} {what}" for time, what in which)


def _file(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


TASKS = (
    Task(
        "logs-tail", "logs", 1,
        "The build broke, so cut off the end of build.log for the bug report: its last 5 lines, as tail.txt.",
        every(lists("tail.txt", *_BUILD[-5:]), unchanged("build.log", _file(*_BUILD))),
        "tail -n 5 build.log > tail.txt",
        {"build.log": _file(*_BUILD)},
    ),
    Task(
        "logs-day", "logs", 1,
        "Give me everything that backup.log says about 14 March 2026, in a file of its own called march14.log.",
        lists("march14.log", *_BACKUP[2:5]),
        "grep '^2026-03-14' backup.log > march14.log",
        {"backup.log": _file(*_BACKUP)},
    ),
    Task(
        "logs-slowest", "logs", 2,
        "Each line of calls.log ends with how long the request took. Which path took the longest? Put just that path"
        " into slowest.txt.",
        says("slowest.txt", "/help"),
        "awk '{t=$NF+0; if (t>m) {m=t; p=$3}} END {print p}' calls.log > slowest.txt",
        {"calls.log": _CALLS},
    ),
    Task(
        "logs-span", "logs", 2,
        "door.log records who came and went. Save the lines between 10:00 and 10:30, both included, in span.log.",
        lists("span.log", *_door(*_DOOR[2:6])),
        "awk '$2 >= \"10:00\" && $2 <= \"10:30\"' door.log > span.log",
        {"door.log": _file(*_door(*_DOOR))},
    ),
    Task(
        "logs-open", "logs", 3,
        "According to worker.log one job was started but never finished. Find its number and put only that number into"
        " open.txt.",
        says("open.txt", "33"),
        "comm -23 <(awk '/started/ {print $3}' worker.log | sort) <(awk '/finished/ {print $3}' worker.log | sort)"
        " > open.txt",
        {"worker.log": _WORKER},
    ),
)  # fmt: skip
