"""Small programs: write one, run one, mend one."""

from bench.ability.checks import every, prints, says, succeeds, text, unchanged
from bench.ability.task import Task

_TEST_MEAN = """from mean import mean

assert mean([2, 4, 9]) == 5
assert mean([7]) == 7
assert mean([]) == 0
print("all tests passed")
"""
_MEAN = """def mean(numbers):
    total = 0
    for number in numbers:
        total += number
    return total / len(numbers)
"""
_TYPO = """prices = [3, 5, 7]
total = 0
for price in prices
    total += price
print("total:", total)
"""
_REPORT = "for name, count in (('apples', 3), ('pears', 12)):\n    print(f'{name}: {count}')\n"
_GREET = "def greet(name):\n    return 'Hello, ' + name + '!'\n"
_MAIN = "from greeting import greet\n\nprint(gret('World'))\n"
_CLOSE = "#!/bin/bash\nfor n in 1 2 3; do\n  if [ $n -eq 2 ]; then\n    echo two\n  fi\necho end\n"

TASKS = (
    Task(
        "program-run", "programs", 1,
        "Run report.py with python3 and save what it prints in report.txt.",
        every(says("report.txt", "apples: 3\npears: 12"), unchanged("report.py", _REPORT)),
        "python3 report.py > report.txt",
        {"report.py": _REPORT},
    ),
    Task(
        "program-write", "programs", 2,
        "Write a Python program squares.py that prints the squares of the numbers 1 to 5, one on each line.",
        prints("python3 squares.py", "1\n4\n9\n16\n25"),
        "echo 'for n in range(1, 6): print(n * n)' > squares.py",
    ),
    Task(
        "program-syntax", "programs", 2,
        "total.py stops with a syntax error. Fix it.",
        every(prints("python3 total.py", "total: 15"), lambda folder: "prices" in text(folder / "total.py")),
        "sed -i 's/in prices$/in prices:/' total.py",
        {"total.py": _TYPO},
    ),
    Task(
        "program-script", "programs", 2,
        "Write a bash script hello.sh that takes a name as its first argument and prints: Hello, NAME!",
        every(prints("bash hello.sh Anna", "Hello, Anna!"), prints("bash hello.sh Tom", "Hello, Tom!")),
        """printf '%s\\n' '#!/bin/bash' 'echo "Hello, $1!"' > hello.sh""",
    ),
    Task(
        "program-name", "programs", 2,
        "python3 main.py fails with an error. Find out why and fix main.py.",
        every(prints("python3 main.py", "Hello, World!"), unchanged("greeting.py", _GREET)),
        "sed -i s/gret/greet/2 main.py; sed -i 's/(gret(/(greet(/' main.py",
        {"main.py": _MAIN, "greeting.py": _GREET},
    ),
    Task(
        "program-test", "programs", 3,
        "python3 test_mean.py fails. Change mean.py, not the test, so that it passes.",
        every(succeeds("python3 test_mean.py"), unchanged("test_mean.py", _TEST_MEAN)),
        "sed -i 's/    return total/    return total and total/' mean.py",
        {"mean.py": _MEAN, "test_mean.py": _TEST_MEAN},
    ),
    Task(
        "program-loop", "programs", 3,
        "bash steps.sh fails with a syntax error: a line is missing. Fix it, so that it prints two and then end.",
        prints("bash steps.sh", "two\nend"),
        "sed -i 's/^echo end/done\\necho end/' steps.sh",
        {"steps.sh": _CLOSE},
    ),
)  # fmt: skip
