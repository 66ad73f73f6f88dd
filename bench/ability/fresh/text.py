"""Plain text: turn round, append, count words, comment out, line ends."""

from pathlib import Path

from bench.ability.checks import every, lists, number, unchanged
from bench.ability.task import Task

_STOPS = "Harbour\nOld Town\nMuseum\nCentral Station\nUniversity\nAirport\n"
_HOSTS = "127.0.0.1 localhost\n192.168.7.2 printer\n192.168.7.9 nas\n"
_SPEECH = """Dear friends,

we came here   with one idea and leave with four.
Thank you all!
"""
_CONF = ("listen 8080", "debug_level 4", "root /srv/www", "debug_file /tmp/debug.out", "workers 2")
_SCRIPT = "#!/bin/sh\nset -e\necho building\necho done\n"


def _has_unix_lines(folder: Path) -> bool:
    return (folder / "build.sh").read_bytes().rstrip() == _SCRIPT.rstrip().encode()


def _debug_is_commented(folder: Path) -> bool:
    found = [line.strip() for line in (folder / "server.conf").read_text().splitlines() if line.strip()]
    plain = [line.removeprefix("#").strip() for line in found]
    return plain == list(_CONF) and [line.startswith("#") for line in found] == ["debug" in line for line in _CONF]


TASKS = (
    Task(
        "text-reverse", "text", 1,
        "stops.txt lists the stops of a bus line. I need the way back: the same lines in the opposite order, in a file"
        " back.txt.",
        every(lists("back.txt", *reversed(_STOPS.splitlines())), unchanged("stops.txt", _STOPS)),
        "tac stops.txt > back.txt",
        {"stops.txt": _STOPS},
    ),
    Task(
        "text-append", "text", 1,
        "Add this line at the end of the file hosts: 192.168.7.30 camera",
        lists("hosts", *_HOSTS.splitlines(), "192.168.7.30 camera"),
        "echo '192.168.7.30 camera' >> hosts",
        {"hosts": _HOSTS},
    ),
    Task(
        "text-length", "text", 1,
        "Count the words in speech.txt for me. The result goes into length.txt, just the number please.",
        number("length.txt", 15),
        "wc -w < speech.txt > length.txt",
        {"speech.txt": _SPEECH},
    ),
    Task(
        "text-comment", "text", 2,
        "In server.conf, comment out every line that starts with debug by putting a # in front of it. The other lines"
        " stay untouched.",
        _debug_is_commented,
        "sed -i 's/^debug/#debug/' server.conf",
        {"server.conf": "".join(f"{line}\n" for line in _CONF)},
    ),
    Task(
        "text-crlf", "text", 2,
        "Somebody saved build.sh on Windows and now it has CRLF line endings. Give it Unix line endings again.",
        _has_unix_lines,
        "sed -i 's/\\r$//' build.sh",
        {"build.sh": _SCRIPT.replace("\n", "\r\n")},
    ),
)  # fmt: skip
