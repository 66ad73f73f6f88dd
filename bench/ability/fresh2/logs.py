"""Log files: around a crash, empty one, two into one, hide addresses, who tried too often."""

from pathlib import Path

from bench.ability.checks import every, lists, text, unchanged
from bench.ability.task import Task

_RENDER = (
    "14:00:01 worker 3 ready",
    "14:00:07 job 880 accepted",
    "14:00:08 loading scene harbour.blend",
    "14:00:31 texture cache at 71%",
    "14:01:12 texture cache at 98%",
    "14:01:13 allocating frame buffer 8192x8192",
    "14:01:13 FATAL out of memory",
    "14:01:14 worker 3 restarting",
    "14:01:19 worker 3 ready",
)
_DEBUG = "".join(f"2026-03-20 11:{minute:02}:00 heartbeat {minute}\n" for minute in range(60))
_ERRORS = "2026-03-20 11:32:08 lost connection to mq1\n"
_WEB = (
    "2026-03-18T07:00:02 web POST /reports",
    "2026-03-18T07:00:09 web GET /reports/1",
    "2026-03-18T07:01:30 web GET /reports/1",
    "2026-03-18T07:03:00 web GET /reports/1.pdf",
)
_WORKER = (
    "2026-03-18T06:59:58 worker up",
    "2026-03-18T07:00:03 worker report 1 queued",
    "2026-03-18T07:01:29 worker report 1 done",
    "2026-03-18T07:04:11 worker idle",
)
_PROXY = (
    "09:14:02 192.168.4.17 -> 93.184.216.34 443 allowed",
    "09:14:05 192.168.4.80 -> 10.0.0.3 22 denied",
    "09:14:09 rule 12 reloaded",
    "09:15:44 172.16.254.1 -> 192.168.4.17 8080 allowed",
    "09:16:00 statistics: 3 connections, 5120 bytes",
)
_HIDDEN = (
    "09:14:02 x.x.x.x -> x.x.x.x 443 allowed",
    "09:14:05 x.x.x.x -> x.x.x.x 22 denied",
    "09:14:09 rule 12 reloaded",
    "09:15:44 x.x.x.x -> x.x.x.x 8080 allowed",
    "09:16:00 statistics: 3 connections, 5120 bytes",
)
_LOGINS = (
    "Failed password for root from 203.0.113.9 port 52211 ssh2",
    "Accepted password for nora from 198.51.100.4 port 40122 ssh2",
    "Failed password for invalid user admin from 203.0.113.9 port 52230 ssh2",
    "Failed password for nora from 198.51.100.23 port 61002 ssh2",
    "Failed password for invalid user test from 192.0.2.150 port 33871 ssh2",
    "Accepted password for nora from 198.51.100.23 port 61010 ssh2",
    "Failed password for root from 203.0.113.9 port 52244 ssh2",
    "Failed password for root from 192.0.2.150 port 33902 ssh2",
    "Accepted password for nora from 198.51.100.4 port 40177 ssh2",
    "Failed password for invalid user oracle from 192.0.2.150 port 33940 ssh2",
    "Failed password for root from 192.0.2.150 port 33951 ssh2",
    "Failed password for nora from 198.51.100.23 port 61733 ssh2",
    "Accepted password for nora from 198.51.100.4 port 40201 ssh2",
)
_AUTH = tuple(f"Mar 19 03:{10 + place}:00 gate sshd[{700 + place}]: {line}" for place, line in enumerate(_LOGINS))


def _file(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _is_empty(folder: Path) -> bool:
    return (folder / "debug.log").is_file() and not text(folder / "debug.log")


TASKS = (
    Task(
        "logs-context", "logs", 1,
        "render.log has a FATAL line in it. Save that line together with the three lines right before it in"
        " crash.txt.",
        lists("crash.txt", *_RENDER[3:7]),
        "grep -B 3 FATAL render.log > crash.txt",
        {"render.log": _file(*_RENDER)},
    ),
    Task(
        "logs-empty", "logs", 1,
        "debug.log is eating up the disk. Empty it, but don't delete the file, the service still needs it. error.log"
        " stays as it is.",
        every(_is_empty, unchanged("error.log", _ERRORS)),
        "truncate -s 0 debug.log",
        {"debug.log": _DEBUG, "error.log": _ERRORS},
    ),
    Task(
        "logs-merge", "logs", 2,
        "I want to see what the web server and the worker did side by side. Merge web.log and worker.log into all.log"
        " with the lines in order of their timestamps.",
        lists("all.log", *sorted(_WEB + _WORKER)),
        "sort web.log worker.log > all.log",
        {"web.log": _file(*_WEB), "worker.log": _file(*_WORKER)},
    ),
    Task(
        "logs-redact", "logs", 2,
        "I have to send proxy.log to the vendor without our addresses. Write a copy named proxy-public.log where every"
        " IP address is replaced with x.x.x.x, and leave proxy.log alone.",
        every(lists("proxy-public.log", *_HIDDEN), unchanged("proxy.log", _file(*_PROXY))),
        "sed -E 's/([0-9]{1,3}\\.){3}[0-9]{1,3}/x.x.x.x/g' proxy.log > proxy-public.log",
        {"proxy.log": _file(*_PROXY)},
    ),
    Task(
        "logs-attempts", "logs", 3,
        "Somebody is guessing passwords on our gateway. From auth.log get me the IP addresses that have three or more"
        " failed password attempts and put them into block.txt, one per line, only the addresses.",
        lists("block.txt", "203.0.113.9", "192.0.2.150", in_order=False),
        "grep 'Failed password' auth.log | grep -oE 'from [0-9.]+' | sort | uniq -c | awk '$1 >= 3 {print $3}'"
        " > block.txt",
        {"auth.log": _file(*_AUTH)},
    ),
)  # fmt: skip
