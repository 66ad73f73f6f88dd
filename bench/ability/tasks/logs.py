"""Log files: count, extract, group."""

from bench.ability.checks import every, lists, number, pairs, says, unchanged
from bench.ability.task import Task

_LINES = (
    ("08:00:01", "INFO", "server started on port 8080"),
    ("08:02:13", "INFO", "user anna logged in"),
    ("08:05:40", "WARN", "disk is 81% full"),
    ("08:07:02", "ERROR", "cannot open /var/data/cache.db"),
    ("08:09:55", "INFO", "user tom logged in"),
    ("08:11:30", "ERROR", "time-out while talking to 10.0.0.7"),
    ("08:15:18", "WARN", "disk is 90% full"),
    ("08:16:44", "INFO", "no ERRORS since 5 minutes"),
    ("08:20:09", "INFO", "user anna logged out"),
    ("08:21:00", "ERROR", "disk is full"),
    ("08:21:30", "INFO", "server stopped"),
)
_APP = "".join(f"2026-03-01 {time} [{level}] {words}\n" for time, level, words in _LINES)
_ERRORS = tuple(f"2026-03-01 {time} [{level}] {words}" for time, level, words in _LINES if level == "ERROR")
_REQUESTS = (
    ("10.0.0.5", "/index.html", 200), ("10.0.0.9", "/shop", 200), ("10.0.0.5", "/old.html", 404),
    ("10.0.0.7", "/shop", 500), ("10.0.0.5", "/shop", 200), ("10.0.0.9", "/favicon.ico", 404),
    ("10.0.0.5", "/cart", 200), ("10.0.0.7", "/old.html", 404), ("10.0.0.9", "/index.html", 200),
    ("10.0.0.3", "/cart", 302),
)  # fmt: skip
_ACCESS = "".join(
    f'{ip} - - [01/Mar/2026:08:00:{second:02} +0000] "GET {path} HTTP/1.1" {status} {100 + second}\n'
    for second, (ip, path, status) in enumerate(_REQUESTS)
)

TASKS = (
    Task(
        "logs-extract", "logs", 1,
        "Copy all lines with [ERROR] from app.log into errors.log.",
        every(lists("errors.log", *_ERRORS), unchanged("app.log", _APP)),
        "grep -F '[ERROR]' app.log > errors.log",
        {"app.log": _APP},
    ),
    Task(
        "logs-count", "logs", 1,
        "How many times did a user log in, according to app.log? Write only the number into logins.txt.",
        number("logins.txt", 2),
        "grep -c 'logged in' app.log > logins.txt",
        {"app.log": _APP},
    ),
    Task(
        "logs-top", "logs", 2,
        "Which IP address made the most requests in access.log? Write only the address into top.txt.",
        says("top.txt", "10.0.0.5"),
        "cut -d' ' -f1 access.log | sort | uniq -c | sort -nr | awk 'NR==1 {print $2}' > top.txt",
        {"access.log": _ACCESS},
    ),
    Task(
        "logs-missing", "logs", 3,
        "Write the paths that were answered with status 404 in access.log into missing.txt, sorted, each path once.",
        lists("missing.txt", "/favicon.ico", "/old.html"),
        "awk '$9==404 {print $7}' access.log | sort -u > missing.txt",
        {"access.log": _ACCESS},
    ),
    Task(
        "logs-levels", "logs", 3,
        "Count the lines of each level (INFO, WARN, ERROR) in app.log and write them into levels.txt, one line for"
        " each level, such as: INFO 12",
        pairs("levels.txt", {"INFO": 6, "WARN": 2, "ERROR": 3}),
        "for l in INFO WARN ERROR; do echo $l $(grep -cF \"[$l]\" app.log); done > levels.txt",
        {"app.log": _APP},
    ),
    Task(
        "logs-last", "logs", 2,
        "Write the last line of app.log that has the level WARN into last.txt.",
        says("last.txt", "2026-03-01 08:15:18 [WARN] disk is 90% full"),
        "grep -F '[WARN]' app.log | tail -n 1 > last.txt",
        {"app.log": _APP},
    ),
    Task(
        "logs-clean", "logs", 1,
        "Remove all lines with the level INFO from app.log.",
        lists("app.log", *(f"2026-03-01 {t} [{level}] {words}" for t, level, words in _LINES if level != "INFO")),
        "sed -i '/\\[INFO\\]/d' app.log",
        {"app.log": _APP},
    ),
)  # fmt: skip
