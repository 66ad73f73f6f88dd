"""Archives: pack, unpack, list, one file out of many."""

from bench.ability.checks import absent, every, number, packed, prints, says
from bench.ability.task import Task

_FILES = {"notes/readme.txt": "read me first\n", "notes/todo.txt": "nothing\n", "data.csv": "a,b\n1,2\n"}
_PACK = "tar --sort=name --mtime=@0 --owner=0 --group=0 -czf backup.tar.gz notes data.csv && rm -r notes data.csv"
_PROJECT = {"project/main.py": "print(1)\n", "project/lib/util.py": "x = 2\n", "project/README.md": "# Project\n"}
_SITE = {
    "site/index.html": "<p>hi</p>\n",
    "site/css/main.css": "p {}\n",
    "site/debug.log": "x\n",
    "site/css/a.log": "y\n",
}

TASKS = (
    Task(
        "archive-pack", "archives", 1,
        "Pack the folder project into an archive named project.tar.gz.",
        every(packed("project.tar.gz", *_PROJECT), says("project/README.md", "# Project")),
        "tar -czf project.tar.gz project",
        _PROJECT,
    ),
    Task(
        "archive-unpack", "archives", 2,
        "Unpack backup.tar.gz into a new folder named restored.",
        every(
            says("restored/notes/readme.txt", "read me first"),
            says("restored/data.csv", "a,b\n1,2"),
            absent("notes", "data.csv"),
        ),
        "mkdir restored && tar -xzf backup.tar.gz -C restored",
        _FILES,
        _PACK,
    ),
    Task(
        "archive-gzip", "archives", 1,
        "Compress big.log with gzip, so that only big.log.gz is left.",
        every(absent("big.log"), prints("gzip -dc big.log.gz | wc -l", "2000")),
        "gzip big.log",
        {"big.log": "all is well\n" * 2000},
    ),
    Task(
        "archive-one", "archives", 2,
        "Take the file notes/readme.txt, and nothing else, out of backup.tar.gz and put it here as readme.txt.",
        every(says("readme.txt", "read me first"), absent("data.csv", "notes/todo.txt")),
        "tar -xzOf backup.tar.gz notes/readme.txt > readme.txt",
        _FILES,
        _PACK,
    ),
    Task(
        "archive-count", "archives", 2,
        "How many files are in bundle.zip? Write only the number into count.txt.",
        number("count.txt", 3),
        "python3 -c 'import zipfile; print(len(zipfile.ZipFile(\"bundle.zip\").namelist()))' > count.txt",
        _FILES,
        "find . -exec touch -d @1772355600 {} +"
        " && zip -q -X bundle.zip notes/readme.txt notes/todo.txt data.csv && rm -r notes data.csv",
    ),
    Task(
        "archive-without", "archives", 3,
        "Pack the folder site into site.tar.gz, but without its .log files. The folder itself must stay as it is.",
        every(packed("site.tar.gz", "site/index.html", "site/css/main.css"), says("site/debug.log", "x")),
        "tar --exclude='*.log' -czf site.tar.gz site",
        _SITE,
    ),
    Task(
        "archive-zip", "archives", 2,
        "Put all .csv files of this folder into an archive named tables.zip.",
        packed("tables.zip", "january.csv", "february.csv"),
        "zip -q tables.zip *.csv",
        {"january.csv": "a\n1\n", "february.csv": "a\n2\n", "notes.txt": "no table\n"},
    ),
)  # fmt: skip
