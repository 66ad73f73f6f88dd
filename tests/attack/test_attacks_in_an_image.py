"""The same attempts in a sandbox of an image (`--image oci:DIR`), by the image's root, who may write to all of its
system. An image of this machine's own programs, so that none is held by a tool that is not there.
"""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from stockade.core.ports import Sandbox
from stockade.runtime.sandboxes import open_sandbox
from stockade_sandbox.policy import Policy
from tests.attack.attempts import AREAS
from tests.attack.attempts.attempt import Attempt
from tests.attack.runner import HELD, THROUGH, Backend, attacked, expected
from tests.attack.scene import Scene
from tests.attack.test_attacks import TOOLS
from tests.attack.together import SHARING, told_once
from tests.support.engines import small_rootfs
from tests.support.oci_images import Layout, entry, layer, of_folder

pytestmark = pytest.mark.anyio
PACKAGES = ("coreutils", "util-linux", "util-linux-extra", "mount", "procps", "grep", "sed", "findutils", "git", "make",
            "hostname", "e2fsprogs", "debianutils", "mawk", "diffutils")  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    listed = subprocess.run(["dpkg", "-L", *PACKAGES], capture_output=True, text=True, check=False).stdout.split()
    found = {Path(path).name for path in listed if Path(path).parent.name in ("bin", "sbin") and Path(path).is_file()}
    root = small_rootfs(tmp_path_factory.mktemp("system") / "root", sorted(found | {"python3", "awk", "ip"}))
    for path in ("usr/lib/python3.11", "usr/lib/git-core"):
        shutil.copytree(f"/{path}", root / path, symlinks=True, ignore=shutil.ignore_patterns("test", "__pycache__"))
    (root / "bin").rename(root / "usr/bin")
    (root / "bin").symlink_to("usr/bin")
    layout = Layout(tmp_path_factory.mktemp("image") / "layout")
    accounts = layer(entry("etc/passwd", b"root:x:0:0::/root:/bin/bash\n"), entry("root/"), entry("tmp/", mode=0o1777))
    layout.add(of_folder(root), accounts, zipped=False)
    return f"oci:{layout.folder}"


def of_image(image: str) -> Backend:
    def make(policy: Policy, base: Path) -> Sandbox:
        return open_sandbox(replace(policy, rootfs=image), "bubblewrap", base)

    return Backend("bubblewrap", make)


BY_NATURE = {
    "writing to /etc", "writing to /",  # in its own layer, which is thrown away
    "becoming root", "who the person is", "what the account may do besides", "a file that belongs to root",
    "becoming another group", "other groups", "set-id by chmod",  # said to be done, and not done (seccomp.FAKED)
}  # fmt: skip
"""What the root of an image is, or is told."""
ONLY_COUNTED = {
    "descriptors of process 1", "descriptors of the shell", "descriptors of a thread of the shell",
    "descriptors of the shell as its own user",
}  # fmt: skip
"""The kernel lets root of a user namespace list the numbers (proc_pid_fd(5)); opening and reading them is held."""
IN_TMP = {"100 MB in /tmp", "30000 files in /tmp"}
"""There /tmp is part of the layer: what fills it is ended by the disk's watch, and finds no end of a file system."""


@pytest.fixture(scope="module")
def outcomes(laid_out: Scene) -> dict[str, str]:
    """Filled by the first test that asks: one sandbox, all attempts."""
    return {}


@pytest.mark.parametrize("attempt", SHARING, ids=lambda attempt: attempt.name)
def test_it_is_held_in_an_image_too(
    attempt: Attempt, image: str, outcomes: dict[str, str], stage: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not outcomes:
        outcomes.update(told_once(tmp_path_factory, "image", stage, of_image(image)))
    assert outcomes[attempt.name] == (THROUGH if attempt.name in BY_NATURE | ONLY_COUNTED else HELD)


@pytest.mark.parametrize("attempt", AREAS["resources"], ids=lambda attempt: attempt.name)
def test_what_fills_the_machine_is_held_in_an_image_too(
    attempt: Attempt, image: str, stage: Scene, tmp_path: Path
) -> None:
    one = replace(attempt, ends=attempt.ends or attempt.name in IN_TMP)
    assert anyio.run(attacked, one, stage, tmp_path / "layers", of_image(image)) in expected(one, "bubblewrap")


async def test_what_the_attempts_use_is_in_the_image(image: str, tmp_path: Path) -> None:
    async with of_image(image).make(Policy(), tmp_path) as box:
        done = await box.run(f"for t in {' '.join(TOOLS)}; do command -v $t >/dev/null || echo $t; done; git --version")
        assert done.stdout.startswith(b"git version"), done


async def test_what_its_root_is_told_was_done_was_not(image: str, tmp_path: Path) -> None:
    async with of_image(image).make(Policy(), tmp_path) as box:
        done = await box.run("cp /bin/true x; chmod 6755 x && chown 7:7 x && stat -c '%a %u' x; cat /proc/self/status")
        assert done.exit_code == 0
        told = done.stdout.decode().splitlines()
        assert told[0] in ("755 0", "777 0")
        rights = [line.split()[1] for line in told if line.startswith("Cap")]
        assert set(rights) == {"0" * 16}
        python = (
            "import os; os.setgroups([4]); os.setgid(4); os.setuid(5); print(os.getuid(), os.getgid(), os.getgroups())"
        )
        assert (await box.run(f'python3 -c "{python}"')).stdout.decode().split()[:2] == ["0", "0"]
