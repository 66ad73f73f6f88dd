"""Files and folders: move, protect, flatten, compare, tidy up."""

from pathlib import Path

from bench.ability.checks import absent, every, lines, only, says
from bench.ability.task import Task

_CNF = "user=shop\npassword=correct-horse\n"
_UPLOADS = {
    "uploads/scan_01.txt": "page one of the lease\n",
    "uploads/scan_02.txt": "page two of the lease\n",
    "uploads/scan_03.txt": "page 1 of the lease!!\n",
    "uploads/copy_b.txt": "page two of the lease\n",
    "uploads/cover.txt": "dear Ms Weber\n",
}


def _is_private(folder: Path) -> bool:
    return (folder / "database.cnf").stat().st_mode & 0o777 == 0o600


def _are_the_same_two(folder: Path) -> bool:
    found = [line.removeprefix("./").removeprefix("uploads/") for line in lines(folder / "same.txt") if line]
    return sorted(found) == ["copy_b.txt", "scan_02.txt"]


TASKS = (
    Task(
        "files-pdf", "files", 1,
        "Please put the PDF files that lie around here into a new subfolder called papers. Nothing else should move.",
        only("papers/invoice-118.pdf", "papers/lease.pdf", "papers/manual.pdf", "shopping.md", "pdf-list.txt"),
        "mkdir papers && mv *.pdf papers",
        {
            "invoice-118.pdf": "%PDF 118\n", "lease.pdf": "%PDF lease\n", "manual.pdf": "%PDF manual\n",
            "shopping.md": "- paper\n", "pdf-list.txt": "three of them\n",
        },
    ),
    Task(
        "files-private", "files", 1,
        "database.cnf can be read by everybody on this machine. Set its permissions so that only the owner can read"
        " and write it, and nobody else can do anything with it.",
        every(_is_private, says("database.cnf", _CNF)),
        "chmod 600 database.cnf",
        {"database.cnf": _CNF},
        "chmod 644 database.cnf",
    ),
    Task(
        "files-flatten", "files", 2,
        "inbox is too deep for me: bring all the files in its subfolders up into inbox itself, then get rid of the"
        " empty subfolders.",
        every(
            only("inbox/hello.eml", "inbox/offer.eml", "inbox/bill.eml", "inbox/trip.eml"),
            absent("inbox/monday", "inbox/friday"),
        ),
        "find inbox -mindepth 2 -type f -exec mv {} inbox/ \\; && find inbox -mindepth 1 -type d -empty -delete",
        {
            "inbox/hello.eml": "hello\n", "inbox/monday/offer.eml": "offer\n", "inbox/monday/bill.eml": "bill\n",
            "inbox/friday/late/trip.eml": "trip\n",
        },
    ),
    Task(
        "files-same", "files", 2,
        "Two of the files in uploads have exactly the same content. Find out which, and put their two names into"
        " same.txt, one per line.",
        _are_the_same_two,
        "cd uploads && sha256sum * | sort | uniq -w 64 -D | awk '{print $2}' > ../same.txt",
        _UPLOADS,
    ),
    Task(
        "files-stale", "files", 2,
        "Clean up the folder spool: everything in it that was last modified more than a year ago can go, the newer"
        " files must stay.",
        only("spool/job-7.dat", "spool/job-8.dat", "keep.txt"),
        "find spool -type f -mtime +365 -delete",
        {f"spool/job-{number}.dat": f"job {number}\n" for number in (3, 4, 7, 8)} | {"keep.txt": "older than all\n"},
        "touch -d 2021-05-04 spool/job-3.dat && touch -d 2022-11-30 spool/job-4.dat && touch -d 2020-01-01 keep.txt",
    ),
)  # fmt: skip
