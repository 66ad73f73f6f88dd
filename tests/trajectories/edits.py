"""Changes: by sed, edit_file, write_file, heredocs, awk, python; renames, removals, bytes that are easily spoiled."""

from tests.support.strong_model import edit, finish, read, shell, write
from tests.trajectories.trajectory import Trajectory

LONG_PROGRAM = "".join(
    f'def step_{n}(value: int) -> int:\n    """Adds {n}; `$HOME`, \\t and "quotes" stay as they are."""\n'
    f"    return value + {n}\n\n\n"
    for n in range(60)
)
MAIN = 'if __name__ == "__main__":\n    print(sum(globals()[f"step_{n}"](1) for n in range(60)))\n'
TABLE = "| name  | value |\n|-------|-------|\n|  a    |   1   |\n\n  | indented | row |\ttab\n"
MAKEFILE = "all: out.txt\n\nout.txt: in.txt\n\tsort < $< > $@\n\n.PHONY: clean\nclean:\n\trm -f out.txt\n"
PATTERNS = 'WORD = r"\\bfoo\\b"\nPRICE = r"\\$(\\d+)\\.(\\d{2})"\nPATH = "C:\\\\new\\\\table"\n'

EDITS = (
    Trajectory(
        "sed-rename",
        "Rename the function totl to total everywhere",
        {"a.py": "def totl(x):\n    return sum(x)\n", "b.py": "from a import totl\n\nprint(totl([1, 2]))\n"},
        [
            [shell("grep -rn totl .")],
            [shell("sed -i 's/\\btotl\\b/total/g' a.py b.py")],
            [shell("grep -rn totl ."), shell("python3 -B b.py")],
            [finish("Renamed totl to total in a.py and b.py; b.py still prints 3.")],
        ],
        {"a.py": "def total(x):\n    return sum(x)\n", "b.py": "from a import total\n\nprint(total([1, 2]))\n"},
    ),
    Trajectory(
        "edit-file",
        "last() must return None for an empty list",
        {"lists.py": "def first(items):\n    return items[0]\n\n\ndef last(items):\n    return items[-1]\n"},
        [
            [read("lists.py")],
            [edit("lists.py", "    return items[-1]\n", "    return items[-1] if items else None\n")],
            [shell("python3 -B -c 'import lists; print(lists.last([]), lists.last([1, 2]))'")],
            "`last` now returns None for an empty list.",
        ],
        {
            "lists.py": "def first(items):\n    return items[0]\n\n\ndef last(items):\n"
            "    return items[-1] if items else None\n"
        },
    ),
    Trajectory(
        "edit-file-ambiguous",
        "Set the second timeout in conf.ini to 60",
        {"conf.ini": "[read]\ntimeout = 5\n\n[write]\ntimeout = 5\n"},
        [
            [edit("conf.ini", "timeout = 5", "timeout = 60")],
            [edit("conf.ini", "[write]\ntimeout = 5", "[write]\ntimeout = 60")],
            [finish("The write timeout is 60 now.")],
        ],
        {"conf.ini": "[read]\ntimeout = 5\n\n[write]\ntimeout = 60\n"},
    ),
    Trajectory(
        "heredoc-long",
        "Write steps.py with sixty step functions and print the sum of all of them applied to 1",
        {"README": "steps\n"},
        [
            [shell(f"cat > steps.py <<'PY'\n{LONG_PROGRAM}{MAIN}PY\n")],
            [shell("python3 steps.py; wc -l steps.py")],
            "steps.py is written and prints 1830.",
        ],
        {"steps.py": LONG_PROGRAM + MAIN},
    ),
    Trajectory(
        "heredoc-makefile",
        "Write a Makefile that sorts in.txt into out.txt, and build it",
        {"in.txt": "b\na\n"},
        [[shell(f"cat > Makefile <<'EOF'\n{MAKEFILE}EOF\nmake")], [finish("out.txt is built by the Makefile.")]],
        {"Makefile": MAKEFILE, "out.txt": "a\nb\n"},
    ),
    Trajectory(
        "write-table",
        "Write the table of values into table.md",
        {"values.txt": "a 1\n"},
        [[read("values.txt")], [write("table.md", TABLE)], [finish("table.md holds the table.")]],
        {"table.md": TABLE},
    ),
    Trajectory(
        "write-patterns",
        "Put the three patterns into patterns.py",
        {"notes.txt": "word, price, path\n"},
        [[write("patterns.py", PATTERNS)], [shell("python3 patterns.py && tail -n 1 patterns.py")], "Done."],
        {"patterns.py": PATTERNS},
    ),
    Trajectory(
        "python-json",
        "Raise the version in package.json to 1.3.0 and keep everything else",
        {"package.json": '{\n  "name": "x",\n  "version": "1.2.9",\n  "deps": {}\n}\n'},
        [
            [shell("cat package.json")],
            [
                shell(
                    "python3 - <<'PY'\nimport json, pathlib\np = pathlib.Path('package.json')\nd = json.loads("
                    "p.read_text())\nd['version'] = '1.3.0'\np.write_text(json.dumps(d, indent=2) + '\\n')\nPY"
                )
            ],
            [shell("git diff --no-index /dev/null package.json | tail -n 5")],
            [finish("The version is 1.3.0.")],
        ],
        {"package.json": '{\n  "name": "x",\n  "version": "1.3.0",\n  "deps": {}\n}\n'},
    ),
    Trajectory(
        "awk-in-place",
        "Swap the two columns of pairs.txt",
        {"pairs.txt": "1 a\n2 b\n"},
        [
            [shell("awk '{print $2, $1}' pairs.txt > pairs.tmp && mv pairs.tmp pairs.txt")],
            [shell("cat pairs.txt")],
            "The columns are swapped.",
        ],
        {"pairs.txt": "a 1\nb 2\n"},
    ),
    Trajectory(
        "awk-sum",
        "Add up the amounts of each town in sales.csv into totals.csv",
        {"sales.csv": "town,amount\nBerlin,3\nParis,4\nBerlin,5\n"},
        [
            [shell("head -n 3 sales.csv")],
            [shell("awk -F, 'NR>1 {s[$1]+=$2} END {for (t in s) print t \",\" s[t]}' sales.csv | sort > totals.csv")],
            [shell("cat totals.csv")],
            [finish("totals.csv: Berlin 8, Paris 4.")],
        ],
        {"totals.csv": "Berlin,8\nParis,4\n"},
    ),
    Trajectory(
        "remove-and-move",
        "Remove the backups and move the logs into logs/",
        {"a.log": "1\n", "b.log": "2\n", "a.py~": "old\n", "src/b.py~": "old\n", "src/b.py": "print()\n"},
        [
            [shell("find . -name '*~' -print -delete")],
            [shell("mkdir logs && mv *.log logs/"), shell("ls -R")],
            "The two backups are gone and both logs are in logs/.",
        ],
        {"a.log": None, "b.log": None, "a.py~": None, "src/b.py~": None, "logs/a.log": "1\n", "logs/b.log": "2\n"},
    ),
    Trajectory(
        "empty-files",
        "Empty the log and make an empty marker file",
        {"app.log": "noise\n"},
        [
            [shell(": > app.log"), write("marker", "")],
            [shell("ls -l; true")],
            [finish("Both are empty.")],
        ],
        {"app.log": "", "marker": ""},
    ),
)
