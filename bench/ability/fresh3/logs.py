"""Log files: since when, one file of each service, one order in the rotated files too, requests of each hour."""

import re
from pathlib import Path

from bench.ability.checks import every, lines, lists, text, unchanged
from bench.ability.task import Task

_STORAGE = (
    "2026-04-02 07:55:10 node1 INFO compaction done",
    "2026-04-02 08:03:44 node2 WARN disk usage 95% on /var",
    "2026-04-02 08:11:02 node1 INFO compaction done",
    "2026-04-02 08:17:31 node2 ERROR disk full on /var",
    "2026-04-02 08:17:35 node2 ERROR write failed for segment 118",
    "2026-04-02 08:19:02 node2 ERROR disk full on /var",
    "2026-04-02 08:40:00 node2 INFO volume extended",
    "2026-04-02 09:02:27 node3 ERROR disk full on /var",
)
_PLATFORM = (
    "11:00:01 [scheduler] tick",
    "11:00:02 [api] GET /users 200",
    "11:00:02 [mailer] queue length 4",
    "11:00:05 [api] POST /users 201",
    "11:00:06 [mailer] sent welcome mail to user 311",
    "11:01:01 [scheduler] tick",
    "11:01:09 [api] GET /users/311 200",
    "11:01:40 [mailer] queue length 3",
    "11:02:01 [scheduler] tick, starting the cleanup job",
)
_SERVICES = ("api", "mailer", "scheduler")
_OLDEST = (
    "2026-05-10 18:20:11 order 7731 created by customer 88",
    "2026-05-10 18:20:14 order 7729 shipped",
    "2026-05-10 18:21:40 order 7731 payment pending",
)
_OLDER = (
    "2026-05-11 09:02:00 order 7740 created by customer 12",
    "2026-05-11 09:15:33 order 7731 payment received",
    "2026-05-11 10:00:00 nightly report sent late",
)
_NEWEST = (
    "2026-05-12 07:30:25 order 7731 picked by station 4",
    "2026-05-12 07:45:00 order 7740 cancelled",
    "2026-05-12 08:10:59 order 7731 shipped",
)
_REQUESTS = {"08": 3, "09": 7, "10": 12, "11": 5}
_ACCESS = tuple(
    f'10.1.0.{number % 5 + 2} - - [21/Apr/2026:{hour}:{number * 4:02}:17 +0000] "GET /item/{number} HTTP/1.1" 200 512'
    for hour, count in _REQUESTS.items()
    for number in range(1, count + 1)
)


def _file(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _says_since(folder: Path) -> bool:
    found = text(folder / "since.txt").strip("[]").replace("T", " ")
    return found == "2026-04-02 08:17:31"


def _has_hours(folder: Path) -> bool:
    """In any order, with any signs between the two; 9 or 09:00 are as good as 09."""
    found = []
    for line in lines(folder / "hours.txt"):
        if line:
            hour, count = re.fullmatch(r"(\d\d?)(?::00)?\D+(\d+)", line).groups()  # type: ignore[union-attr]
            found.append((f"{int(hour):02}", int(count)))
    return sorted(found) == sorted(_REQUESTS.items())


TASKS = (
    Task(
        "logs-since", "logs", 1,
        "When did storage.log report disk full for the first time? Put the date and time of that line into since.txt,"
        " as it is in the log and nothing else.",
        _says_since,
        "grep -m 1 'disk full' storage.log | cut -c 1-19 > since.txt",
        {"storage.log": _file(*_STORAGE)},
    ),
    Task(
        "logs-split", "logs", 2,
        "In platform.log the lines of three services are mixed, the service is the name in brackets. Split it up into"
        " api.log, mailer.log and scheduler.log, with the whole lines in the same order as now. Keep platform.log.",
        every(
            *(lists(f"{name}.log", *(line for line in _PLATFORM if f"[{name}]" in line)) for name in _SERVICES),
            unchanged("platform.log", _file(*_PLATFORM)),
        ),
        'for s in api mailer scheduler; do grep -F "[$s]" platform.log > $s.log; done',
        {"platform.log": _file(*_PLATFORM)},
    ),
    Task(
        "logs-rotated", "logs", 2,
        "A customer asks what happened to order 7731. Collect all lines about it from app.log and the rotated files"
        " app.log.1 and app.log.2.gz, and save them in order7731.txt, the oldest first.",
        lists("order7731.txt", *(line for line in _OLDEST + _OLDER + _NEWEST if "order 7731 " in line)),
        "(zcat app.log.2.gz; cat app.log.1 app.log) | grep 'order 7731 ' > order7731.txt",
        {"app.log": _file(*_NEWEST), "app.log.1": _file(*_OLDER), "app.log.2": _file(*_OLDEST)},
        "gzip -n app.log.2",
    ),
    Task(
        "logs-hours", "logs", 3,
        "I want to know how busy the server was on that day. Count the requests in access.log per hour and write"
        " hours.txt with one line for each hour: the hour, a space and the number of requests, for example: 14 25",
        every(_has_hours, unchanged("access.log", _file(*_ACCESS))),
        "cut -d : -f 2 access.log | sort | uniq -c | awk '{print $2, $1}' > hours.txt",
        {"access.log": _file(*_ACCESS)},
    ),
)  # fmt: skip
