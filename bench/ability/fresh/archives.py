"""Archives: list, add, unpack many, one of each folder, another format."""

from pathlib import Path

from bench.ability.checks import absent, every, lines, only, packed, prints, says
from bench.ability.task import Task

_RELEASE = {"bin/start": "#!/bin/sh\n", "share/logo.svg": "<svg/>\n", "LICENSE": "MIT\n", "share/help/en.txt": "help\n"}
_PAPERS = {"thesis.txt": "chapter one\n", "sources.txt": "Knuth\n", "abstract.txt": "in short\n"}
_DUMPS = {"dumps/users.sql": "insert 1;\n", "dumps/orders.sql": "insert 2;\n", "dumps/readme.txt": "nightly\n"}
_CLIENTS = {
    "acme/contract.txt": "acme\n",
    "acme/mails/first.txt": "dear acme\n",
    "zenith/contract.txt": "zenith\n",
    "prices.txt": "12\n",
}
_LEGACY = {
    "legacy/main.c": "int main(void) { return 0; }\n",
    "legacy/Makefile": "all:\n",
    "legacy/doc/intro.txt": "hi\n",
}
_TOUCH = "find . -exec touch -d @1772355600 {} +"


def _has_contents(folder: Path) -> bool:
    found = [line.removeprefix("./") for line in lines(folder / "contents.txt") if line]
    return sorted(found) == sorted(_RELEASE)


TASKS = (
    Task(
        "archive-list", "archives", 1,
        "What is inside release.tar.gz? Do not unpack it, just save the list of the files in it to contents.txt.",
        every(_has_contents, absent("LICENSE", "bin", "share")),
        "tar -tzf release.tar.gz > contents.txt",
        _RELEASE,
        "tar --mtime=@0 --owner=0 --group=0 -czf release.tar.gz bin/start share/logo.svg LICENSE share/help/en.txt"
        " && rm -r bin share LICENSE",
    ),
    Task(
        "archive-add", "archives", 2,
        "I forgot abstract.txt when I made papers.zip. Add it to that archive; what is already in there must stay.",
        every(packed("papers.zip", *_PAPERS), prints("unzip -p papers.zip thesis.txt abstract.txt | wc -l", "2")),
        "zip -q papers.zip abstract.txt",
        _PAPERS,
        f"{_TOUCH} && zip -q -X papers.zip thesis.txt sources.txt && rm thesis.txt sources.txt",
    ),
    Task(
        "archive-gunzip", "archives", 2,
        "The database dumps in the folder dumps are all gzipped. Decompress them in place, so that the plain .sql files"
        " are there instead of the .gz files.",
        every(only(*_DUMPS), says("dumps/users.sql", "insert 1;"), says("dumps/orders.sql", "insert 2;")),
        "gunzip dumps/*.gz",
        _DUMPS,
        "gzip -n dumps/users.sql dumps/orders.sql",
    ),
    Task(
        "archive-each", "archives", 2,
        "Make a plain uncompressed tar of each of the two folders acme and zenith: acme.tar and zenith.tar. Leave the"
        " folders where they are.",
        every(
            packed("acme.tar", "acme/contract.txt", "acme/mails/first.txt"),
            packed("zenith.tar", "zenith/contract.txt"),
            prints("grep -ac 'dear acme' acme.tar", "1"),
            says("acme/contract.txt", "acme"),
        ),
        "for d in acme zenith; do tar -cf $d.tar $d; done",
        _CLIENTS,
    ),
    Task(
        "archive-convert", "archives", 3,
        "Our server cannot read zip files. Turn legacy.zip into legacy.tar.gz with the same files under the same paths,"
        " and delete legacy.zip when that is done.",
        every(
            packed("legacy.tar.gz", *_LEGACY),
            prints("tar -xzOf legacy.tar.gz --wildcards '*Makefile'", "all:"),
            absent("legacy.zip"),
        ),
        "unzip -q legacy.zip && tar -czf legacy.tar.gz legacy && rm -r legacy legacy.zip",
        _LEGACY,
        f"{_TOUCH} && zip -q -X legacy.zip legacy/main.c legacy/Makefile legacy/doc/intro.txt && rm -r legacy",
    ),
)  # fmt: skip
