"""Archives: take something out, leave the top folder off, pack and clear, find the damaged one, replace one file."""

from pathlib import Path

from bench.ability.checks import absent, every, exists, lines, names, packed, prints, says
from bench.ability.task import Task, bash

_BUNDLE = {"app.py": "print('ok')\n", ".env": "TOKEN=abc123\n", "static/style.css": "body {}\n", "README.md": "# App\n"}
_VENDOR = {
    "vendor-3.2/lib/core.js": "core\n",
    "vendor-3.2/lib/dom/events.js": "events\n",
    "vendor-3.2/LICENSE": "BSD\n",
}
_LOGS = {
    "logs/api.log": "api started\n",
    "logs/cron.log": "cron started\n",
    "logs/mail.log": "mail started\n",
    "logs/rotate.conf": "weekly\n",
}
_BACKUPS = ("customers", "invoices", "shipments")
_SERVICE = {
    "service/bin/run.sh": "#!/bin/sh\nexec app\n",
    "service/config/app.ini": "workers=2\n",
    "service/config/log.ini": "level=info\n",
    "service/VERSION": "7\n",
}
_NEW_INI = "workers=8\nqueue=fast\n"
_PLAIN = "--sort=name --mtime=@0 --owner=0 --group=0"
_TOUCH = "find . -exec touch -d @1772355600 {} +"


def _has_vendor(folder: Path) -> bool:
    return names(folder / "vendor") == {name.removeprefix("vendor-3.2/") for name in _VENDOR}


def _has_logs(folder: Path) -> bool:
    """With or without their folder in front."""
    done = bash("tar -xzOf logs.tar.gz", folder)
    listed = bash("tar -tzf logs.tar.gz", folder).stdout.split()
    found = sorted(name.rsplit("/", 1)[-1] for name in listed if not name.endswith("/"))
    started = sorted(line for line in done.stdout.splitlines() if line)
    return found == ["api.log", "cron.log", "mail.log"] and started == ["api started", "cron started", "mail started"]


def _names_the_damaged(folder: Path) -> bool:
    found = [line.removeprefix("./").removeprefix("backups/") for line in lines(folder / "damaged.txt") if line]
    return found == ["invoices.sql.gz"]


TASKS = (
    Task(
        "archive-secret", "archives", 1,
        "Oops, our .env file is inside bundle.zip. Remove it from the archive, everything else in it has to stay.",
        every(
            packed("bundle.zip", *(name for name in _BUNDLE if name != ".env")),
            prints("unzip -p bundle.zip app.py; unzip -p bundle.zip static/style.css", "print('ok')\nbody {}"),
        ),
        "zip -q -d bundle.zip .env",
        _BUNDLE,
        f"{_TOUCH} && zip -q -X bundle.zip app.py .env static/style.css README.md"
        " && rm -r app.py .env static README.md",
    ),
    Task(
        "archive-strip", "archives", 2,
        "Everything in vendor-3.2.tar.gz is inside a top folder vendor-3.2. Unpack it into a folder named vendor"
        " without that top level, so that we get vendor/LICENSE, vendor/lib and so on.",
        every(_has_vendor, says("vendor/lib/core.js", "core"), says("vendor/lib/dom/events.js", "events")),
        "mkdir vendor && tar -xzf vendor-3.2.tar.gz -C vendor --strip-components=1",
        _VENDOR,
        f"tar {_PLAIN} -czf vendor-3.2.tar.gz vendor-3.2 && rm -r vendor-3.2",
    ),
    Task(
        "archive-clear", "archives", 2,
        "Pack the .log files from the folder logs into logs.tar.gz, here next to that folder, and then delete those"
        " .log files. Whatever else is in the folder stays.",
        every(_has_logs, exists("logs/rotate.conf"), absent("logs/api.log", "logs/cron.log", "logs/mail.log")),
        "tar -czf logs.tar.gz logs/*.log && rm logs/*.log",
        _LOGS,
    ),
    Task(
        "archive-damaged", "archives", 2,
        "One of the gzip files in backups is damaged and can't be decompressed any more. Find out which one and write"
        " its file name to damaged.txt.",
        every(_names_the_damaged, exists(*(f"backups/{name}.sql.gz" for name in _BACKUPS))),
        "for f in backups/*.gz; do gzip -t $f 2> /dev/null || basename $f; done > damaged.txt",
        {
            f"backups/{name}.sql": "".join(f"insert into {name} values ({n}, {n * n * 37 % 997});\n" for n in range(80))
            for name in _BACKUPS
        },
        "gzip -n backups/*.sql && truncate -s 300 backups/invoices.sql.gz",
    ),
    Task(
        "archive-replace", "archives", 3,
        "The app.ini lying here is the new version of service/config/app.ini in service.tar.gz. Put it into the archive"
        " in place of the old one. The archive keeps its name and all the other files in it.",
        prints(
            "d=$(mktemp -d); trap 'rm -r $d' EXIT; tar -xzf service.tar.gz -C $d; cd $d;"
            " find . -type f | LC_ALL=C sort; cat service/config/app.ini service/VERSION service/config/log.ini",
            "./service/VERSION\n./service/bin/run.sh\n./service/config/app.ini\n./service/config/log.ini\n"
            f"{_NEW_INI}7\nlevel=info",
        ),
        "tar -xzf service.tar.gz && cp app.ini service/config/ && tar -czf service.tar.gz service && rm -r service",
        {**_SERVICE, "app.ini": _NEW_INI},
        f"tar {_PLAIN} -czf service.tar.gz service && rm -r service",
    ),
)  # fmt: skip
