"""Small programs: run one with a variable, take a file name, mend a limit, write the tests."""

from bench.ability.checks import every, prints, says, succeeds, unchanged
from bench.ability.task import Check, Task

_DEPLOY = """#!/bin/bash
stage=${STAGE:-dev}
echo "stage: $stage"
case "$stage" in
  prod) echo "replicas: 6" ;;
  test) echo "replicas: 2" ;;
  *) echo "replicas: 1" ;;
esac
"""
_AVERAGE = """def read(name):
    with open(name) as file:
        return [float(line) for line in file if line.strip()]


values = read("temps.txt")
print(f"{len(values)} values, average {sum(values) / len(values):.1f}")
"""
_ARGUMENT = """sed -i '1i import sys\\n\\n
s/read("temps.txt")/read(sys.argv[1] if len(sys.argv) > 1 else "temps.txt")/' average.py"""
_SHIPPING = '''"""Shipping costs of an order."""

FREE_FROM = 50
COSTS = 4.9


def shipping(total):
    if total > FREE_FROM:
        return 0
    return COSTS


if __name__ == "__main__":
    for total in (20, 50, 80):
        print(total, shipping(total))
'''
_SIZES = '''"""Sizes of files, as people write them."""


def parse_size(words):
    """The number of bytes: "512" is 512, "4K" is 4 * 1024, "2M" is 2 * 1024 * 1024."""
    if words.endswith("K"):
        return int(words[:-1]) * 1024
    if words.endswith("M"):
        return int(words[:-1]) * 1024 * 1024
    return int(words)
'''
_TESTS = """import unittest

from sizes import parse_size


class ParseSize(unittest.TestCase):
    def test_bytes(self):
        self.assertEqual(parse_size("512"), 512)

    def test_kilobytes(self):
        self.assertEqual(parse_size("4K"), 4096)

    def test_megabytes(self):
        self.assertEqual(parse_size("2M"), 2097152)


if __name__ == "__main__":
    unittest.main()
"""


def _tests_say(passes: bool, change: str = "") -> Check:
    """What the tests say, in a place of their own, of sizes.py after this change by sed."""
    return succeeds(
        f"test -f test_sizes.py; d=$(mktemp -d); trap 'rm -r $d' EXIT; cp sizes.py test_sizes.py $d; cd $d;"
        f" sed -i '{change}' sizes.py; {'' if passes else '! '}python3 -B -m unittest test_sizes"
    )


TASKS = (
    Task(
        "program-env", "programs", 1,
        "Run deploy.sh with bash and with the environment variable STAGE set to test, and save what it prints to"
        " deploy.txt. Don't change the script.",
        every(says("deploy.txt", "stage: test\nreplicas: 2"), unchanged("deploy.sh", _DEPLOY)),
        "STAGE=test bash deploy.sh > deploy.txt",
        {"deploy.sh": _DEPLOY},
    ),
    Task(
        "program-argument", "programs", 2,
        "average.py always reads temps.txt. Change it so that I can give it another file, as in python3 average.py"
        " other.txt. Without an argument it should still read temps.txt.",
        every(
            prints("python3 average.py", "3 values, average 21.0"),
            prints("python3 average.py other.txt", "2 values, average 5.5"),
            prints("d=$(mktemp); trap 'rm $d' EXIT; echo 7 > $d; python3 average.py $d", "1 values, average 7.0"),
        ),
        _ARGUMENT,
        {"average.py": _AVERAGE, "temps.txt": "20.5\n21\n21.5\n", "other.txt": "4\n7\n"},
    ),
    Task(
        "program-discount", "programs", 2,
        "Orders of 50 euros or more should ship for free, but shipping.py still charges for an order of exactly 50. Fix"
        " that.",
        prints(
            "python3 -B -c 'import shipping as s; print(*(float(s.shipping(x)) for x in (20, 49.99, 50, 50.01, 80)))'",
            "4.9 4.9 0.0 0.0 0.0",
        ),
        "sed -i 's/total > FREE_FROM/total >= FREE_FROM/' shipping.py",
        {"shipping.py": _SHIPPING},
    ),
    Task(
        "program-tests", "programs", 3,
        "sizes.py has no tests yet. Write test_sizes.py with unittest that tests parse_size for plain numbers, for K"
        " and for M. python3 -m unittest test_sizes has to pass, and sizes.py stays as it is.",
        every(
            unchanged("sizes.py", _SIZES),
            _tests_say(True),
            _tests_say(False, 's/"K"/"Q"/'),
            _tests_say(False, 's/"M"/"Q"/'),
            _tests_say(False, "s/return int(words)$/return int(words) * 10 + 1/"),
        ),
        f"cat > test_sizes.py <<'END'\n{_TESTS}END",
        {"sizes.py": _SIZES},
    ),
)  # fmt: skip
