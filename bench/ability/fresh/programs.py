"""Small programs: run one, write one, mend one, rearrange one."""

import json

from bench.ability.checks import every, number, prints, unchanged
from bench.ability.task import Task

_CHECK = """#!/bin/bash
missing=0
for name in alpha beta gamma delta; do
  [ -e "$name.cfg" ] || missing=$((missing + 1))
done
echo "checked four names"
exit $missing
"""
_COUNTDOWN = 'for number in range(5, 1, -1):\n    print(number)\nprint("lift-off")\n'
_ORDERS = [{"item": "tea", "price": 4}, {"item": "sample"}, {"item": "pot", "price": 19}]
_INVOICE = """import json

with open("orders.json") as file:
    orders = json.load(file)

total = 0
for order in orders:
    total += order["price"]
print("total", total)
"""
_TOOL = """def shout(words):
    return words.upper() + "!"


def main():
    print(shout("ready"))
    print(shout("go"))


main()
"""
_SPLIT = """sed -n 1,2p tool.py > voice.py
sed -i 1,4d tool.py
sed -i '1i from voice import shout\\n\\n' tool.py
"""
_LINECOUNT = "import sys\nprint(len(open(sys.argv[1]).readlines()))"

TASKS = (
    Task(
        "program-status", "programs", 1,
        "Run check.sh with bash. I am interested in its exit status: put that number into status.txt.",
        every(number("status.txt", 3), unchanged("check.sh", _CHECK)),
        "bash check.sh || echo $? > status.txt",
        {"check.sh": _CHECK, "beta.cfg": "on\n", "notes.cfg": "on\n"},
    ),
    Task(
        "program-lines", "programs", 2,
        "I would like a little Python program linecount.py: it gets the name of a file as its argument and prints how"
        " many lines that file has, only the number.",
        every(prints("python3 linecount.py seven.txt", "7"), prints("python3 linecount.py two.txt", "2")),
        f"echo '{_LINECOUNT}' > linecount.py",
        {"seven.txt": "1\n2\n3\n4\n5\n6\n7\n", "two.txt": "one\ntwo\n"},
    ),
    Task(
        "program-countdown", "programs", 2,
        "countdown.py should count from 5 down to 1 and then print lift-off, but the 1 is missing. Can you correct it?",
        prints("python3 countdown.py", "5\n4\n3\n2\n1\nlift-off"),
        "sed -i 's/5, 1, -1/5, 0, -1/' countdown.py",
        {"countdown.py": _COUNTDOWN},
    ),
    Task(
        "program-price", "programs", 3,
        "invoice.py crashes because some orders in orders.json have no price. Change invoice.py so that such an order"
        " counts as 0, and leave orders.json alone.",
        every(
            prints("python3 invoice.py", "total 23"),
            unchanged("orders.json", json.dumps(_ORDERS)),
            prints("""d=$(mktemp -d); cp invoice.py $d; cd $d; echo '[{"price": 8}, {}]' > orders.json
                   python3 invoice.py; rm -r $d""", "total 8"),
        ),
        """sed -i 's/order\\["price"\\]/order.get("price", 0)/' invoice.py""",
        {"invoice.py": _INVOICE, "orders.json": json.dumps(_ORDERS)},
    ),
    Task(
        "program-split", "programs", 3,
        "Please move the function shout out of tool.py into a new module voice.py, and let tool.py import it from"
        " there. python3 tool.py must print the same as before.",
        every(
            prints("python3 tool.py", "READY!\nGO!"),
            prints("python3 -c 'import voice; print(voice.shout(\"a\"))'", "A!"),
            prints("grep -c 'def shout' tool.py || true", "0"),
        ),
        _SPLIT,
        {"tool.py": _TOOL},
    ),
)  # fmt: skip
