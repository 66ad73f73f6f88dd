"""An ssh server on loopback that lets in who we are, and an agent that has the key. Never skipped."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_MISSING = "these tests need OpenSSH: apt-get install openssh-server openssh-client (.ci/run does)"


@dataclass
class Ssh:
    """`account` is what --ssh-agent takes. Files: private keys with their .pub, `host`, `user`, and `other`, which is
    another known host's; and `log`.
    """

    folder: Path
    port: int

    @property
    def account(self) -> str:
        return f"{getpass.getuser()}@localhost:{self.port}"

    def url(self, repository: Path) -> str:
        return f"ssh://{self.account}{repository}"

    @property
    def known(self) -> str:
        return f"[localhost]:{self.port} {' '.join((self.folder / 'host.pub').read_text().split()[:2])}\n"

    def listed(self) -> str:
        """What the agent lists, a line each."""
        return subprocess.run(["ssh-add", "-l"], check=True, capture_output=True, text=True).stdout

    def logins(self) -> int:
        return (self.folder / "log").read_text().count("Accepted publickey")


def make_key(path: Path, kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "secret comment", "-f", path], check=True)
    return path


@contextmanager
def ssh_server(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ssh]:
    """With SSH_AUTH_SOCK set, and its key known in `home`."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert None not in (program, shutil.which("ssh-agent")), _MISSING
    with socket.create_server(("127.0.0.1", 0)) as found:
        ssh = Ssh(folder, found.getsockname()[1])
    user, _ = make_key(folder / "user"), make_key(folder / "host")
    shutil.copy(f"{user}.pub", folder / "authorized")
    settings = (
        f"Port {ssh.port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", "PidFile none", "StrictModes no",
        f"AuthorizedKeysFile {folder}/authorized", "UsePAM no", "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
    )  # fmt: skip
    (folder / "settings").write_text("\n".join(settings) + "\n")
    other = make_key(folder / "other").with_suffix(".pub").read_text().split()
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    (home / ".ssh/known_hosts").write_text(f"{ssh.known}other.example {other[0]} {other[1]}\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    agent = ["ssh-agent", "-D", "-a", str(folder / "agent")]
    server = [str(program), "-D", "-f", str(folder / "settings"), "-E", str(folder / "log")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(agent, **quiet) as one, subprocess.Popen(server, **quiet) as other:  # type: ignore[call-overload]
        try:
            while not (folder / "agent").exists() or not _answers(ssh.port):
                assert (one.poll(), other.poll()) == (None, None), (folder / "log").read_text()
                time.sleep(0.02)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(folder / "agent"))
            subprocess.run(["ssh-add", "-q", str(user)], check=True)
            yield ssh
        finally:
            one.kill()
            other.kill()


def _answers(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0
