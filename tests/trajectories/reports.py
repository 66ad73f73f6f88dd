"""Reports in place of changes, greps that find nothing, programs that may be absent, and a user's No."""

from tests.support.strong_model import edit, finish, read, shell
from tests.trajectories.trajectory import Trajectory

LOG = "".join(f"2026-11-24 10:{n:02} {'ERROR disk full' if n % 7 == 3 else 'INFO ok'}\n" for n in range(40))
REPOSITORY = (
    "git init -q . && git add -A && git -c user.name=A -c user.email=a@b commit -qm 'First version'"
    " && echo 'print(2)' > app.py && git -c user.name=A -c user.email=a@b commit -qam 'Print two'"
)
YES = "o"

REPORTS = (
    Trajectory(
        "grep-nothing",
        "Are there any TODOs left?",
        {"a.py": "x = 1\n", "b.py": "y = 2\n"},
        [[shell("grep -rn TODO ."), shell("grep -rniE 'fixme|xxx' --include='*.py' .")], "No: there is none."],
    ),
    Trajectory(
        "grep-four-ways",
        "Where is the retry limit set?",
        {"net/client.py": "LIMITS = {'attempts': 3}\n", "main.py": "import net.client\n"},
        [
            [shell("grep -rn retry .")],
            [shell("grep -rn -i retries ."), shell("grep -rn MAX_ .")],
            [shell("grep -rn -i attempt .")],
            [finish("In net/client.py, line 1: LIMITS['attempts'] is 3.")],
        ],
    ),
    Trajectory(
        "why-report",
        "Why does main.py fail? Don't change anything.",
        {"main.py": "import settings\n\nprint(settings.PORT)\n", "settings.py": "HOST = 'x'\n"},
        [
            [shell("python3 -B main.py")],
            [read("settings.py")],
            "settings.py has no PORT, which main.py line 3 reads. Nothing was changed.",
        ],
    ),
    Trajectory(
        "count-errors",
        "How many errors are in the log, and which one comes most often?",
        {"app.log": LOG},
        [[shell("grep -c ERROR app.log"), shell("cut -c 18- app.log | sort | uniq -c")], "6, all of them 'disk full'."],
    ),
    Trajectory(
        "diff-report",
        "Write the differences of old.txt and new.txt into changes.diff",
        {"old.txt": "a\nb\n", "new.txt": "a\nc\n"},
        [
            [shell("diff old.txt new.txt > changes.diff"), shell("cat changes.diff")],
            [finish("One line differs: b became c.")],
        ],
        {"changes.diff": "2c2\n< b\n---\n> c\n"},
    ),
    Trajectory(
        "docker",
        "Which services does the compose file start?",
        {"compose.yaml": "services:\n  db:\n    image: postgres\n  web:\n    image: nginx\n"},
        [
            [shell("docker compose config --services")],
            [shell("docker ps; podman ps")],
            [shell('awk \'/^  [a-z]+:$/ {sub(":", "", $1); print $1}\' compose.yaml')],
            "db and web. Docker itself does not run here, so I read the file.",
        ],
    ),
    Trajectory(
        "ssh",
        "Check the disk of the host build1 over ssh; write what you find into disk.txt",
        {"hosts": "build1 10.1.2.3\n"},
        [
            [shell("ssh -o BatchMode=yes -o ConnectTimeout=3 build1 df -h", timeout=20)],
            [shell("curl -sS --max-time 3 http://10.1.2.3/; nc -z -w 2 10.1.2.3 22")],
            [shell("echo 'build1 cannot be reached from here' > disk.txt")],
            [finish("build1 cannot be reached from here: there is no network. disk.txt says so.")],
        ],
        {"disk.txt": "build1 cannot be reached from here\n"},
    ),
    Trajectory(
        "git-history",
        "What did the last commit change?",
        {"app.py": "print(1)\n"},
        [
            [shell("git log --oneline | cat"), shell("git show --stat HEAD | cat")],
            [shell("git diff --exit-code HEAD~1 -- app.py")],
            "The last commit made app.py print 2 in place of 1.",
        ],
        setup=REPOSITORY,
    ),
    Trajectory(
        "git-restore",
        "I broke app.py by hand; bring the committed version back and say what I had changed",
        {"app.py": "print(1)\n"},
        [
            [shell("git status --short"), shell("git diff | cat")],
            [shell("git show HEAD:app.py > app.py"), shell("git status --short")],
            [finish("app.py is the committed one again; you had changed its only line to `print(oops`.")],
        ],
        {"app.py": "print(2)\n"},
        setup=f"{REPOSITORY} && echo 'print(oops' > app.py",
    ),
    Trajectory(
        "big-output",
        "What is the last line that gen.sh prints?",
        {"gen.sh": "seq 1 200000\n"},
        [[shell("sh gen.sh")], [shell("sh gen.sh | tail -n 1")], "200000"],
    ),
    Trajectory(
        "statuses",
        "Which of the three scripts fail?",
        {"a.sh": "exit 0\n", "b.sh": "exit 3\n", "c.sh": "no_such_program\n"},
        [
            [shell("sh a.sh"), shell("sh b.sh"), shell("sh c.sh"), shell("test -e d.sh"), shell("false")],
            [finish("b.sh ends with 3 and c.sh with 127; a.sh succeeds.")],
        ],
    ),
    Trajectory(
        "user-says-no",
        "Tidy up the folder",
        {"keep.txt": "1\n", "old.txt": "2\n"},
        [
            [shell("ls")],
            [shell("rm old.txt")],
            "You did not want old.txt removed, so I changed nothing.",
        ],
        typed=(YES, "leave old.txt alone"),
    ),
    Trajectory(
        "user-says-no-then-otherwise",
        "Set the port to 81",
        {"app.conf": "port = 80\n"},
        [
            [shell("sed -i 's/80/81/' app.conf")],
            [edit("app.conf", "port = 80", "port = 81")],
            [finish("The port is 81.")],
        ],
        {"app.conf": "port = 81\n"},
        typed=("use edit_file please", YES),
    ),
    Trajectory(
        "user-says-no-to-all",
        "Clean the build",
        {"Makefile": "clean:\n\trm -rf build\n", "build/x": "1\n"},
        [[shell("make clean")], [shell("rm -r build")], [finish("You refused both ways; build/ is as it was.")]],
        typed=("leave the build alone", "leave the build alone"),
    ),
)
