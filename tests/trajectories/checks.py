"""Tests that fail first: through unittest, pytest, make; the cause in another file; several rounds; polling."""

from tests.support.strong_model import edit, finish, read, shell
from tests.trajectories.trajectory import Trajectory

TEST_ADD = (
    "import unittest\n\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n    def test_add(self):\n"
    "        self.assertEqual(add(2, 3), 5)\n"
)
TEST_PRICE = (
    "import unittest\n\nfrom shop import price\n\n\nclass TestPrice(unittest.TestCase):\n    def test_price(self):\n"
    '        self.assertEqual(price("tea"), 3)\n'
)
TEST_STACK = (
    "from stack import Stack\n\n\ndef test_push():\n    s = Stack()\n    s.push(1)\n    assert s.pop() == 1\n\n\n"
    "def test_empty():\n    assert Stack().pop() is None\n"
)
STACK = "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        pass\n\n"
UNITTEST = "python3 -B -m unittest -q"

CHECKS = (
    Trajectory(
        "unittest",
        "The test fails; mend the program",
        {"calc.py": "def add(a, b):\n    return a - b\n", "test_calc.py": TEST_ADD},
        [
            [shell(UNITTEST)],
            [shell("cat calc.py"), shell("cat test_calc.py")],
            [shell("sed -i 's/a - b/a + b/' calc.py && " + UNITTEST)],
            [finish("add subtracted; it adds now and the test passes.")],
        ],
        {"calc.py": "def add(a, b):\n    return a + b\n"},
    ),
    Trajectory(
        "pytest-missing",
        "Make the tests of stack.py pass",
        {"stack.py": STACK + "    def pop(self):\n        return self.items.pop()\n", "test_stack.py": TEST_STACK},
        [
            [shell("python3 -m pytest -q")],
            [shell("pip install pytest 2>&1 | tail -n 1"), read("stack.py"), read("test_stack.py")],
            [
                edit("stack.py", "        pass\n", "        self.items.append(item)\n"),
                edit("stack.py", "return self.items.pop()", "return self.items.pop() if self.items else None"),
            ],
            [shell("python3 -B -c \"import test_stack as t; t.test_push(); t.test_empty(); print('ok')\"")],
            "Both tests pass; I called them by hand since pytest is not installed here.",
        ],
        {
            "stack.py": STACK.replace("        pass\n", "        self.items.append(item)\n")
            + "    def pop(self):\n        return self.items.pop() if self.items else None\n"
        },
    ),
    Trajectory(
        "make-test",
        "make test fails. Fix it.",
        {
            "Makefile": "test:\n\t./greet.sh World | grep -qx 'Hello, World!'\n",
            "greet.sh": '#!/bin/sh\necho "Hello $1!"\n',
        },
        [
            [shell("make test; echo status $?"), shell("cat greet.sh Makefile")],
            [shell("chmod +x greet.sh && sed -i 's/Hello /Hello, /' greet.sh && make test")],
            [finish("greet.sh was not executable and left out the comma.")],
        ],
        {"greet.sh": '#!/bin/sh\necho "Hello, $1!"\n'},
    ),
    Trajectory(
        "root-cause-elsewhere",
        "test_shop.py fails, something is wrong in shop.py",
        {
            "shop.py": "import json\n\nPRICES = json.load(open('prices.json'))\n\n\ndef price(name):\n"
            "    return PRICES[name]\n",
            "prices.json": '{"tea": "3", "cake": 4}\n',
            "test_shop.py": TEST_PRICE,
        },
        [
            [shell(f"{UNITTEST} 2>&1 | tail -n 8")],
            [read("shop.py"), read("prices.json")],
            [edit("prices.json", '"3"', "3")],
            [shell(f"{UNITTEST} 2>&1 | tail -n 3")],
            "shop.py is right. prices.json held tea's price as a text; it is a number now and the test passes.",
        ],
        {"prices.json": '{"tea": 3, "cake": 4}\n'},
    ),
    Trajectory(
        "red-green-rounds",
        "Make all tests pass",
        {
            "calc.py": "def add(a, b):\n    return a\n\n\ndef mul(a, b):\n    return a\n",
            "test_calc.py": TEST_ADD.replace("import add", "import add, mul")
            + "\n    def test_mul(self):\n        self.assertEqual(mul(2, 3), 6)\n",
        },
        [
            [shell(UNITTEST)],
            [edit("calc.py", "def add(a, b):\n    return a\n", "def add(a, b):\n    return a + b\n")],
            [shell(UNITTEST)],
            [edit("calc.py", "def mul(a, b):\n    return a\n", "def mul(a, b):\n    return a * b\n")],
            [shell(UNITTEST)],
            [finish("Both functions were stubs; 2 tests pass.")],
        ],
        {"calc.py": "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n    return a * b\n"},
    ),
    Trajectory(
        "nothing-to-mend",
        "Fix the bug in add",
        {"calc.py": "def add(a, b):\n    return a + b\n", "test_calc.py": TEST_ADD},
        [
            [shell("cat calc.py test_calc.py")],
            [shell(UNITTEST)],
            "I found no bug: add returns a + b and its test passes. I changed nothing.",
        ],
    ),
    Trajectory(
        "background-job",
        "Run slow.sh and tell me what it writes",
        {"slow.sh": "for n in 1 2 3; do sleep 0.4; echo $n; done\n"},
        [
            [shell("sh slow.sh > /tmp/out 2>&1 & echo started")],
            *[[shell("sleep 0.3; cat /tmp/out; jobs")] for _ in range(4)],
            [finish("It counts from 1 to 3.")],
        ],
    ),
    Trajectory(
        "server-and-client",
        "Does serve.py answer with 200?",
        {"serve.py": "import http.server\nhttp.server.test(http.server.SimpleHTTPRequestHandler, port=8765)\n"},
        [
            [shell("python3 serve.py > /tmp/log 2>&1 &")],
            [
                shell(
                    "for i in 1 2 3 4 5 6 7 8 9; do (: < /dev/tcp/127.0.0.1/8765) 2>/dev/null && break; sleep 0.3; done"
                )
            ],
            [shell("python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8765/').status)\"")],
            [shell("kill %1; wait")],
            "Yes: it answers 200.",
        ],
    ),
    Trajectory(
        "script-mode",
        "Make run.sh work as ./run.sh",
        {"run.sh": "#!/bin/bash\nset -euo pipefail\ncd no-such-folder\n"},
        [
            [shell("./run.sh")],
            [shell("chmod +x run.sh; ./run.sh; echo $?")],
            [shell("sed -i 's/^cd .*/echo ok/' run.sh; ./run.sh")],
            [finish("run.sh is executable and prints ok.")],
        ],
        {"run.sh": "#!/bin/bash\nset -euo pipefail\necho ok\n"},
    ),
)
