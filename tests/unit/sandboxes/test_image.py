"""Sandboxes of images that no engine runs: whose they are inside, what can be written, and packages."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from stockade_sandbox import Policy, Sandbox
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.errors import PolicyNotEnforceable, UsageError
from stockade_sandbox.policy import FolderRule, Limits, Network
from stockade_sandbox.results import NetworkRequest
from tests.conformance.ordinary_user import run_as_ordinary_user
from tests.support.engines import small_rootfs
from tests.support.oci_images import Layout, entry, layer, link, of_folder, save
from tests.support.site import run, site, to_loopback

ACCOUNTS = (
    entry(
        "etc/passwd", b"root:x:0:0::/root:/bin/bash\nweb:x:33:44::/var/www:/bin/bash\n_apt:x:42:65534::/nonexistent:\n"
    ),
    entry("etc/group", b"root:x:0:\nweb:x:44:\nnogroup:x:65534:\n"),
)
APT = (
    "apt-get",
    "dpkg",
    "dpkg-deb",
    "dpkg-split",
    "tar",
    "gzip",
    "ldconfig",
    "start-stop-daemon",
    "chmod",
    "mv",
    "diff",
    "find",
)

FOLDERS = ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/dpkg/dpkg.cfg.d", "var/lib/dpkg/info",
           "var/lib/dpkg/updates", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial",
           "var/log/apt")  # fmt: skip
METHODS = ("http", "store", "file", "copy")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return of_folder(small_rootfs(tmp_path_factory.mktemp("system") / "root"))


@pytest.fixture
def image(system: bytes, tmp_path: Path) -> str:
    layout = Layout(tmp_path / "image")
    app = layer(*ACCOUNTS, entry("app/"), entry("app/hello", b"hello\n"))
    layout.add(system, app, Env=["FROM=image", "http_proxy=http://image.test", "PATH=/bin"], WorkingDir="/app")
    return f"oci:{layout.folder}"


def test_it_is_the_images_user_with_its_variables_in_its_folder(image: str) -> None:
    with Sandbox(policy=Policy(rootfs=image, environment={"OWN": "1"})) as box:
        assert box.exec(shell="id -u; pwd; echo $FROM $OWN $HOME $USER $PATH; cat hello").text == (
            "0\n/app\nimage 1 /root root /bin\nhello\n"
        )
        assert box.exec(["sh", "-c", "echo $http_proxy; pwd"]).text == "http://image.test\n/app\n"


def test_all_of_it_is_written_to_and_only_there(image: str) -> None:
    for _ in range(2):
        with Sandbox(policy=Policy(rootfs=image)) as box:
            assert (
                box.exec(["sh", "-c", "cat /marker && rm /marker && echo x >/usr-own && touch /bin/new"]).text
                == "small\n"
            )
            assert box.exec(["ls", "/"]).exit_code == 0
            assert box.exec(["cat", "/marker"]).exit_code == 1
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "stockade/images"
    root = next(one / "root" for one in cache.iterdir() if one.is_dir())
    assert (root / "marker").read_text() == "small\n"
    assert not (root / "usr-own").exists()


def test_nothing_of_this_machine_is_there(image: str) -> None:
    with Sandbox(policy=Policy(rootfs=image)) as box:
        assert set(box.exec(["ls", "/"]).text.split()) == {
            "app", "bin", "dev", "etc", "lib", "lib64", "marker", "proc", "sys", "tmp", "var",
        } - (set() if platform.machine() == "x86_64" else {"lib64"})  # fmt: skip
        assert box.exec(["touch", "/proc/sys/kernel/hostname", "/dev/x"]).exit_code == 1


def test_a_folder_is_the_working_folder_and_reviewed(image: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    policy = Policy(rootfs=image, folders=(FolderRule(host=str(tmp_path / "mine")),))
    with Sandbox(policy=policy) as box:
        assert box.exec(shell="pwd; echo made >file").text == "/workspace\n"
        assert "+made" in box.diff()
        box.apply()
    assert (tmp_path / "mine/file").read_text() == "made\n"
    assert (tmp_path / "mine/file").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("user", ["web", "7:8"])
def test_another_user_of_the_image(system: bytes, tmp_path: Path, user: str) -> None:
    file = save(tmp_path / "saved.tar", system, layer(*ACCOUNTS), User=user, WorkingDir="/made/here")
    with Sandbox(policy=Policy(rootfs=f"docker-archive:{file}")) as box:
        wanted = "33\n44\n/made/here\n/var/www\n" if user == "web" else "7\n8\n/made/here\n/\n"
        assert box.exec(["sh", "-c", "id -u; id -g; pwd; echo $HOME"]).text == wanted


@pytest.mark.parametrize("to", ["/etc", "etc", "/nowhere", None])
def test_a_link_where_a_folder_is_mounted_is_refused(system: bytes, tmp_path: Path, to: str | None) -> None:
    """Or bubblewrap would follow it among what it is putting together."""
    layout = Layout(tmp_path / "image")
    layout.add(system, layer(link("workspace", to) if to else entry("workspace", b"a file")))
    (tmp_path / "mine").mkdir()
    policy = Policy(rootfs=f"oci:{layout.folder}", folders=(FolderRule(host=str(tmp_path / "mine")),))
    with pytest.raises(UsageError, match="/workspace"), Sandbox(policy=policy):
        pass


def test_what_cannot_be_had_is_refused_by_name(image: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyNotEnforceable, match="the image's own"), Sandbox(policy=Policy(rootfs=image, root=True)):
        pass
    layout = Layout(tmp_path / "no-bash")
    layout.add(layer(entry("bin/sh", b"x")))
    with pytest.raises(Exception, match="bash"), Sandbox(policy=Policy(rootfs=f"oci:{layout.folder}")):
        pass


def test_a_limit_of_the_disk_holds_for_it(image: str) -> None:
    policy = Policy(rootfs=image, limits=Limits(disk_bytes=32 << 20, file_bytes=0))
    with Sandbox(policy=policy) as box:
        done = box.exec(shell="cat /dev/zero >/big", timeout=60)
        assert done.exit_code != 0
        assert b"limit" in done.stdout + done.stderr


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[int]:
    """A repository of one package, which gives a file to a user of its own, on loopback."""
    made, repository = tmp_path / "hello", tmp_path / "repository"
    for folder in (made / "DEBIAN", made / "usr/bin", repository):
        folder.mkdir(parents=True)
    (made / "usr/bin/hello-there").write_text("#!/bin/sh\necho hello there\n")
    (made / "usr/bin/hello-there").chmod(0o4755)
    (made / "DEBIAN/control").write_text(
        "Package: hello-there\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n"
    )
    run("dpkg-deb", "--build", made, repository / "hello-there.deb")
    data = (repository / "hello-there.deb").read_bytes()
    about = f"Filename: ./hello-there.deb\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    (repository / "Packages").write_text((made / "DEBIAN/control").read_text() + about)
    with site(repository, None) as port:
        yield port


@pytest.fixture
def debian(tmp_path: Path, mirror: int) -> str:
    """This machine's apt and dpkg, which know that repository and nothing that is installed."""
    root = small_rootfs(tmp_path / "debian", (*APT, *(f"/usr/lib/apt/methods/{name}" for name in METHODS)))
    shutil.copytree("/usr/share/dpkg", root / "usr/share/dpkg")
    methods = root / "usr/lib/apt/methods"
    methods.mkdir(parents=True)
    for name in METHODS:
        (root / "bin" / name).rename(methods / name)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] http://good.test:{mirror} ./\n")
    layout = Layout(tmp_path / "debian-image")
    (root / "bin").rename(root / "usr/bin")
    (root / "bin").symlink_to("usr/bin")
    layout.add(of_folder(root), layer(*ACCOUNTS, link("usr/sbin", "bin"), entry("root/"), entry("tmp/", mode=0o1777)))
    return f"oci:{layout.folder}"


INSTALL = "apt-get update 2>&1 && apt-get install -y hello-there 2>&1 && hello-there && stat -c %A /bin"


@pytest.mark.parametrize("way", ["", "unset http_proxy https_proxy HTTPS_PROXY; "], ids=["the proxy", "no proxy"])
@pytest.mark.anyio
async def test_apt_installs_as_its_root(debian: str, mirror: int, tmp_path: Path, way: str) -> None:
    policy = Policy(rootfs=debian, network=Network(mode="allow", hosts=(f"good.test:{mirror}",)))
    requests: list[NetworkRequest] = []
    box = BubblewrapSandbox(policy, (), tmp_path / "run", to_loopback)
    box.on_network = requests.append
    with anyio.fail_after(300):
        async with box:
            done = await box.run(way + INSTALL)
    assert done.exit_code == 0, done.stdout.decode()
    assert b"hello there\n" in done.stdout
    assert {request.host for request in requests} == {"good.test"}


PROGRAM = """
import sys
from stockade_sandbox import Policy, Sandbox
with Sandbox(policy=Policy(rootfs=sys.argv[1])) as box:
    print(box.exec(["sh", "-c", "id -u; pwd; touch /made && stat -c %u /made; rm /marker; ls /marker 2>&1"]).text)
"""


@pytest.mark.root
def test_an_ordinary_user_has_it_as_well(image: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    run("cp", "-r", image.partition(":")[2], home / "image")
    run("chmod", "-R", "a+rX", home / "image")
    try:
        done = run_as_ordinary_user([sys.executable, "-c", PROGRAM, f"oci:{home}/image"], home)
    finally:
        run("rm", "-rf", home)
    assert done.stdout.splitlines()[:3] == ["0", "/app", "0"], done.stderr
    assert "cannot access '/marker'" in done.stdout
