"""Archives: compress and keep, parts into one, what a list names, what changed since."""

from pathlib import Path

from bench.ability.checks import every, lines, packed, prints, unchanged
from bench.ability.task import Task

_MEASURED = "time,volts\n" + "".join(f"{minute},{230 + minute * 7 % 11}\n" for minute in range(60))
_DUMP = {
    "schema.sql": "create table users (id int, name text);\n",
    "data/users.sql": "".join(f"insert into users values ({n}, 'user{n * n * 31 % 977}');\n" for n in range(60)),
    "data/roles.sql": "insert into roles values (1, 'admin');\n",
}
_PROJECT = {
    "README.md": "# Relay\n",
    "bin/relay.sh": "#!/bin/sh\nexec python3 lib/core.py\n",
    "lib/core.py": "print('relay')\n",
    "lib/debug.py": "print('debug')\n",
    "tests/test_core.py": "import core\n",
    "notes.txt": "internal\n",
}
_LISTED = ("README.md", "bin/relay.sh", "lib/core.py")
_MANIFEST = "".join(f"{name}\n" for name in _LISTED)
_SITE = {
    "site/index.html": "<h1>Welcome</h1>\n",
    "site/about.html": "<h1>About us</h1>\n",
    "site/css/main.css": "body { margin: 0 }\n",
    "site/css/print.css": "nav { display: none }\n",
    "site/js/menu.js": "let open = false\n",
}


def _has_dump(folder: Path) -> bool:
    return all((folder / "dump" / name).read_text() == content for name, content in _DUMP.items())


def _names_changed(folder: Path) -> bool:
    found = [line.removeprefix("./").removeprefix("site/") for line in lines(folder / "changed.txt") if line]
    return sorted(found) == ["css/main.css", "index.html"]


TASKS = (
    Task(
        "archive-keep", "archives", 1,
        "Make a gzip compressed version of measurements.csv named measurements.csv.gz. I still need the uncompressed"
        " file, so keep that too.",
        every(prints("gzip -dc measurements.csv.gz", _MEASURED), unchanged("measurements.csv", _MEASURED)),
        "gzip -k measurements.csv",
        {"measurements.csv": _MEASURED},
    ),
    Task(
        "archive-parts", "archives", 2,
        "We got the database dump in three parts because of the mail size limit: dump.tar.gz.part1 to"
        " dump.tar.gz.part3. Put them together again and unpack the archive into a new folder dump.",
        _has_dump,
        "mkdir dump && cat dump.tar.gz.part1 dump.tar.gz.part2 dump.tar.gz.part3 | tar -xz -C dump",
        _DUMP,
        "tar --sort=name --mtime=@0 --owner=0 --group=0 -czf dump.tar.gz schema.sql data && rm -r schema.sql data"
        " && split -n 3 -a 1 --numeric-suffixes=1 dump.tar.gz dump.tar.gz.part && rm dump.tar.gz",
    ),
    Task(
        "archive-manifest", "archives", 2,
        "Build the release archive release.tar.gz. It should contain exactly the files that are listed in manifest.txt,"
        " under the paths given there.",
        every(packed("release.tar.gz", *_LISTED), prints("tar -xzOf release.tar.gz lib/core.py || tar -xzOf"
              " release.tar.gz ./lib/core.py", "print('relay')"), prints("gzip -t release.tar.gz", "")),
        "tar -czf release.tar.gz -T manifest.txt",
        {**_PROJECT, "manifest.txt": _MANIFEST},
    ),
    Task(
        "archive-differs", "archives", 3,
        "site-backup.tar.gz is last week's backup of the folder site. Some of the files in site have been edited since"
        " then. Find out which ones have other content now and write their paths to changed.txt, one per line. Don't"
        " change anything in site.",
        every(
            _names_changed,
            *(
                unchanged(f"site/{name}", _SITE[f"site/{name}"])
                for name in ("about.html", "css/print.css", "js/menu.js")
            ),
            prints("cat site/index.html site/css/main.css", "<h1>Welcome back</h1>\nbody { margin: 4px }"),
        ),
        "d=$(mktemp -d); tar -xzf site-backup.tar.gz -C $d; for f in $(find site -type f); do cmp -s $f $d/$f ||"
        " echo $f; done > changed.txt; rm -r $d",
        _SITE,
        "find site -exec touch -d @1772355600 {} + && tar --sort=name -czf site-backup.tar.gz site"
        " && echo '<h1>Welcome back</h1>' > site/index.html && echo 'body { margin: 4px }' > site/css/main.css"
        " && touch -d @1772755600 site/index.html site/css/main.css",
    ),
)  # fmt: skip
