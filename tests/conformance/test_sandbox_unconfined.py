"""The sandbox suite on `unconfined`, in a process id namespace of its own and as a user without rights."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_INNER = """
import os, subprocess, sys, tempfile
from pathlib import Path
from tests.conformance.ordinary_user import run_as_ordinary_user
here = os.getcwd()
checkout = os.open(here, os.O_PATH)
for place in ("/tmp", "/var/tmp", "/dev/shm"):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", place], check=True)
if not os.path.exists(sys.executable):  # the checkout itself is below one of them
    os.makedirs(here)
    subprocess.run(["mount", "--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{checkout}", here], check=True)
    os.chdir(here)
home = tempfile.mkdtemp()
done = run_as_ordinary_user([*sys.argv[1:], f"--basetemp={home}/t"], Path(home))
print(done.stdout + done.stderr)
sys.exit(done.returncode)
"""


@pytest.mark.root
def test_all_of_it_where_it_can_do_no_harm() -> None:
    suite = ["pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "tests/conformance/unconfined_suite.py"]
    sealed = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*sealed, sys.executable, "-c", _INNER, sys.executable, "-m", *suite],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
