"""Small programs: separate two streams, names with spaces, read numbers, another name, a new option."""

from pathlib import Path

from bench.ability.checks import every, prints, says, unchanged
from bench.ability.task import Check, Task, bash

_IMPORT = """import sys

ROWS = ["4;anvil", "x;rope", "9;bell", ";hook"]
for row in ROWS:
    number, name = row.split(";")
    if number.isdigit():
        print(number, name)
    else:
        print("warning: no number for", name, file=sys.stderr)
"""
_COLLECT = """#!/bin/bash
# Copies the text files of docs to out.
mkdir -p out
for file in $(ls docs/*.txt); do
  cp $file out/
done
echo finished
"""
_MINMAX = "import sys; n = [float(x) for x in sys.stdin if x.strip()]; print(min(n), max(n))"
_PRICING = """def calc(net, rate=19):
    return net * (100 + rate) // 100


def calc_all(nets):
    return [calc(net) for net in nets]
"""
_REPORT = """from pricing import calc


def line(net):
    return f"calculated: {calc(net)}"
"""
_MAIN = """import pricing
from report import line

print(line(200))
print(pricing.calc(100, rate=7))
print(sum(pricing.calc_all([100, 300])))
"""
_TODO = """import sys


def main():
    with open(sys.argv[1]) as file:
        for line in file:
            print(line.rstrip())


if __name__ == "__main__":
    main()
"""
_LIST = "[x] order disks\n[ ] renew certificate\n[x] rotate keys\n[ ] call provider\n"
_OPTION = """sed -i 's/sys.argv.1./sys.argv[-1]/
s/    print(line/    if "--open" not in sys.argv or line.startswith("[ ]"):\\n                print(line/' todo.py"""


def _finds(numbers: str, *wanted: float) -> Check:
    """-2.0 is as good as -2."""

    def check(folder: Path) -> bool:
        done = bash(f"printf '{numbers}' | python3 minmax.py", folder)
        return done.returncode == 0 and [float(word) for word in done.stdout.split()] == list(wanted)

    return check


TASKS = (
    Task(
        "program-streams", "programs", 1,
        "Run import.py with python3. It prints its results to stdout and its warnings to stderr; save the results in"
        " result.txt and the warnings in warnings.txt.",
        every(
            says("result.txt", "4 anvil\n9 bell"),
            says("warnings.txt", "warning: no number for rope\nwarning: no number for hook"),
            unchanged("import.py", _IMPORT),
        ),
        "python3 import.py > result.txt 2> warnings.txt",
        {"import.py": _IMPORT},
    ),
    Task(
        "program-spaces", "programs", 2,
        "collect.sh copies the text files from docs to out, but it fails when a file name has a space in it. Please fix"
        " the script.",
        prints(
            "d=$(mktemp -d); trap 'rm -r $d' EXIT; cp collect.sh $d; cd $d; mkdir docs; echo 1 > 'docs/a b.txt';"
            " echo 2 > 'docs/to do  list.txt'; echo 3 > docs/plain.txt; echo 4 > docs/photo.png;"
            " bash collect.sh > /dev/null; ls out | LC_ALL=C sort; cat out/*b.txt out/plain.txt out/to*",
            "a b.txt\nplain.txt\nto do  list.txt\n1\n3\n2",
        ),
        "sed -i 's/.(ls docs.*txt)/docs\\/*.txt/; s/cp .file/cp \"$file\"/' collect.sh",
        {"collect.sh": _COLLECT, "docs/road map.txt": "north\n", "docs/index.txt": "one\n", "docs/logo.png": "png\n"},
    ),
    Task(
        "program-minmax", "programs", 2,
        "Write a Python script minmax.py that reads numbers from standard input, one per line, and prints the smallest"
        " and the largest of them on one line with a space in between.",
        every(_finds("3\\n-2\\n10\\n7\\n", -2, 10), _finds("100\\n20\\n", 20, 100), _finds("1.5\\n", 1.5, 1.5)),
        f"echo '{_MINMAX}' > minmax.py",
        {"sample.txt": "3\n-2\n10\n7\n"},
    ),
    Task(
        "program-rename", "programs", 3,
        "The function calc in pricing.py has a bad name. Rename it to gross_price, in pricing.py and wherever it is"
        " used in the other files. calc_all keeps its name, and python3 main.py has to print the same as before.",
        every(
            prints("python3 main.py", "calculated: 238\n107\n476"),
            prints("python3 -c 'import pricing as p; print(p.gross_price(100), p.calc_all([100]))'", "119 [119]"),
            prints("cat pricing.py report.py main.py | grep -cw calc || true", "0"),
        ),
        "sed -i 's/\\bcalc\\b/gross_price/g' *.py",
        {"pricing.py": _PRICING, "report.py": _REPORT, "main.py": _MAIN},
    ),
    Task(
        "program-option", "programs", 3,
        "python3 todo.py list.txt prints my whole to-do list. Add an option --open to todo.py, so that python3 todo.py"
        " --open list.txt prints just the lines that start with [ ]. Without the option it works as before.",
        every(
            prints("python3 todo.py list.txt", _LIST),
            prints("python3 todo.py --open list.txt", "[ ] renew certificate\n[ ] call provider"),
            unchanged("list.txt", _LIST),
        ),
        _OPTION,
        {"todo.py": _TODO, "list.txt": _LIST},
    ),
)  # fmt: skip
