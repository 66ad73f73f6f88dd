"""Harbor as published, in Debian 13: its own command runs a task of ours in our sandbox."""

import json
import re
from pathlib import Path

import pytest

from tests.support.debian_root import inside, make_image
from tests.support.toolchains import harbor

pytestmark = pytest.mark.toolchain
PAGE = (Path(__file__).parents[2] / "docs/integrations/harbor.md").read_text()
TASK = """version = "1.0"
[environment]
{image}
allow_internet = false
memory_mb = 1024
"""
SOLVE = "#!/bin/bash\ncd /app && wc -l < data.csv > count.txt\n"
CHECK = """#!/bin/bash
if [ "$(cat /app/count.txt)" = 3 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
head -c 20000000 /dev/zero | tr '\\0' x
python3 -c 'import urllib.request as one; one.urlopen("https://deb.debian.org", timeout=3)' 2>&1 | tail -n 1
"""


@pytest.fixture(scope="module")
def root() -> Path:
    return harbor()


def write_task(work: Path, image: str) -> None:
    files = {
        "task.toml": TASK.format(image=image), "instruction.md": "Count the lines of /app/data.csv into count.txt.",
        "environment/data.csv": "a\nb\nc\n", "solution/solve.sh": SOLVE, "tests/test.sh": CHECK,
    }  # fmt: skip
    for name, text in files.items():
        (path := work / "mytask" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def run(root: Path, work: Path, *more: str) -> tuple[str, list[dict[str, object]]]:
    """What it printed, unwrapped, and the result of each trial."""
    (line,) = re.findall(r"^harbor (run .*\\\n.*)$", PAGE, re.MULTILINE)
    words = [one for one in line.replace("\\\n", " ").split() if one not in ("--ek", "image=docker-archive:task.tar")]
    done = inside(root, work, ["/opt/harbor/bin/harbor", *words, "-o", "/mnt/jobs", *more])
    said = re.sub(r"[│\s]+", " ", done.stdout + done.stderr)
    return said, [json.loads(one.read_text()) for one in (work / "jobs").glob("*/*/result.json")]


def test_a_task_is_solved_and_judged_without_a_network(root: Path, tmp_path: Path) -> None:
    make_image(root, tmp_path / "image", "/app")
    write_task(tmp_path, 'docker_image = "oci:/mnt/image"')
    said, (trial,) = run(root, tmp_path)
    assert trial["exception_info"] is None, said
    assert trial["verifier_result"] == {"rewards": {"reward": 1.0}}
    (verifier,) = (tmp_path / "jobs").glob("*/*/verifier/test-stdout.txt")
    assert "in name resolution" in verifier.read_text()[-200:]


def test_what_nobody_built_is_refused_with_the_way_out(root: Path, tmp_path: Path) -> None:
    write_task(tmp_path, "")
    (tmp_path / "mytask/environment/Dockerfile").write_text("FROM debian:13\n")
    said, trials = run(root, tmp_path)
    assert "docker save -o task.tar task, then --ek image=docker-archive:task.tar" in said + str(trials)


def test_another_user_is_refused_by_name(root: Path, tmp_path: Path) -> None:
    make_image(root, tmp_path / "image", "/app")
    write_task(tmp_path, 'docker_image = "oci:/mnt/image"\n[agent]\nuser = "nobody"')
    said, trials = run(root, tmp_path)
    assert "not as nobody: the one user of this sandbox is its image's, 0 root" in said + str(trials)
