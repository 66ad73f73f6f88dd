"""A fifth set: questions about a folder. What counts is what the bot says at its end; nothing has to be written.

Written after the reading bot was seen to say "The task is done." when it was asked for a number, and frozen before any
run. Nothing is to be tuned on them.
"""

import re
from pathlib import Path

from bench.ability.task import ANSWER, Check, Kind, Task


def answers(wanted: str, *, without: str = "") -> Check:
    """The last word of the bot holds `wanted`, a pattern, as a whole word, and nothing of `without`."""

    def check(folder: Path) -> bool:
        said = (folder / ANSWER).read_text(errors="replace").replace("**", "").replace("`", "")
        wrong = bool(without) and re.search(rf"(?<![\w.])(?:{without})(?!\w|\.\d)", said, re.IGNORECASE)
        return not wrong and re.search(rf"(?<![\w.])(?:{wanted})(?!\w|\.\d)", said, re.IGNORECASE) is not None

    return check


def _asked(name: str, level: int, words: str, check: Check, way: str, files: dict[str, str], prepare: str = "") -> Task:
    kind: Kind = "questions"
    assert level in (1, 2, 3)
    return Task(name, kind, level, words, check, f"{{ {way}\n}} > {ANSWER}", files, prepare)  # type: ignore[arg-type]


_SERVER = "[server]\nhost = 0.0.0.0\nport = 8443\nworkers = 6\n\n[database]\nhost = db.internal\nport = 5433\n"
_ORDERS = (
    "order,customer,city,amount\n1001,Osei,Accra,120\n1002,Lund,Malmo,75\n1003,Osei,Accra,310\n1004,Brandt,Kiel,75\n"
    "1005,Lund,Malmo,260\n1006,Vega,Lima,42\n"
)
_LOG = (
    "2026-03-02T08:00:01 INFO started\n2026-03-02T08:04:11 WARN slow query 2.3 s\n"
    "2026-03-02T08:09:40 ERROR lost connection to db.internal\n2026-03-02T08:09:41 INFO retry\n"
    "2026-03-02T08:15:02 WARN slow query 3.1 s\n2026-03-02T08:31:57 ERROR no space left on device\n"
    "2026-03-02T08:32:00 INFO stopped\n"
)
_STATUS = (
    '10.0.0.1 "GET /" 200\n10.0.0.2 "GET /cart" 404\n10.0.0.1 "GET /pay" 500\n10.0.0.3 "GET /" 200\n'
    '10.0.0.1 "GET /cart" 404\n10.0.0.4 "GET /old" 404\n'
)
_PACKAGES = '{"name": "tide", "version": "4.2.0", "licence": "MIT", "dependencies": {"wave": "^1.1", "moon": "~2.0"}}\n'
_STAFF = '[{"name": "Ruth", "team": "ops", "on_call": false}, {"name": "Ivo", "team": "ops", "on_call": true},\n'
_STAFF += ' {"name": "Mei", "team": "web", "on_call": false}]\n'
_POEM = "The tide goes out\nthe boats lie still\na gull walks slowly\nover the mud\nthe tide comes in\n"
_CODE = (
    "import sys\n\nLIMIT = 250\n\n\ndef read(path):\n    return open(path).read()\n\n\n"
    "def count(text):\n    return len(text.split())\n\n\ndef main():\n    print(count(read(sys.argv[1])) > LIMIT)\n"
)
_BROKEN = "def mean(values):\n    return sum(values) / len(values)\n\n\nprint(mean([]))\n"
_COMMITS = """git init -q -b main && git config user.name Noor && git config user.email noor@example.org
echo a > a.txt && git add a.txt && git commit -qm 'Begin'
echo b > b.txt && git add b.txt && git -c user.name=Tomas commit -qm 'Add the second file'
echo c >> a.txt && git commit -qam 'Change the first file'
git branch release"""

TASKS: tuple[Task, ...] = (
    _asked("question-port", 1, "Which port does the web server in server.ini listen on, not the database?",
           answers("8443", without="5433"), "echo 8443", {"server.ini": _SERVER}),
    _asked("question-lines", 1, "How many lines has poem.txt?", answers("5|five"), "wc -l < poem.txt",
           {"poem.txt": _POEM}),
    _asked("question-customer", 2, "Which customer in orders.csv has spent the most in total?",
           answers("Osei", without="Lund|Brandt|Vega"), "echo Osei", {"orders.csv": _ORDERS}),
    _asked("question-version", 1, "Which version does package.json say?", answers(r"4\.2\.0"),
           "jq -r .version package.json", {"package.json": _PACKAGES}),
    _asked("question-errors", 1, "How many errors are in app.log?", answers("2|two"), "grep -c ERROR app.log",
           {"app.log": _LOG}),
    _asked("question-archive", 1, "How many files are in backup.tar.gz?", answers("3|three"), "echo 3", {},
           "mkdir x && touch x/a x/b x/c && tar -C x --mtime=@0 -czf backup.tar.gz a b c && rm -r x"),
    _asked("question-author", 1, "Who wrote the second commit in this repository?",
           answers("Tomas", without="Noor"), "echo Tomas", {}, _COMMITS),
    _asked("question-limit", 1, "What is the value of LIMIT in words.py?", answers("250"),
           "echo 250", {"words.py": _CODE}),
    _asked("question-largest", 1, "Which is the largest file here?",
           answers(r"beta\.bin", without=r"alpha\.bin|gamma\.bin"), "ls -S | head -n 1",
           {"alpha.bin": "a" * 300, "beta.bin": "b" * 900, "gamma.bin": "c" * 90}),
    _asked("question-word", 2, "How many times does the word tide stand in poem.txt?", answers("2|two|twice"),
           "grep -ow tide poem.txt | wc -l", {"poem.txt": _POEM}),
    _asked("question-sum", 2, "What do the amounts of all orders from Malmo in orders.csv add up to?", answers("335"),
           "echo 335", {"orders.csv": _ORDERS}),
    _asked("question-on-call", 1, "Who is on call, according to staff.json?", answers("Ivo", without="Ruth|Mei"),
           "jq -r '.[] | select(.on_call).name' staff.json", {"staff.json": _STAFF}),
    _asked("question-missing", 2, "Which path was answered with 404 most often in access.log?",
           answers("/cart", without="/old|/pay"), "echo /cart", {"access.log": _STATUS}),
    _asked("question-inside", 2, "What does the file motd.txt in site.zip say?", answers("Closed on Mondays"),
           "unzip -p site.zip motd.txt", {},
           "echo 'Closed on Mondays' > motd.txt && touch -d @1772355600 motd.txt && zip -qmX site.zip motd.txt"),
    _asked("question-branches", 1, "Which branches does this repository have?", answers("release"), "git branch", {},
           _COMMITS),
    _asked("question-fails", 2, "Why does mean.py fail? Say which error it ends with.",
           answers("ZeroDivisionError|division by zero"), "echo ZeroDivisionError", {"mean.py": _BROKEN}),
)  # fmt: skip
