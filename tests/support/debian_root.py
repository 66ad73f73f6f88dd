"""Debian 13 as a folder, for what needs a newer Python than this machine has: made once, by mmdebstrap. Needs root."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.oci_images import Layout

AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
_INCLUDED = "--include=python3-venv,bubblewrap,ca-certificates"
_ENTER = """
root=$1 work=$2 ours=$3; shift 3
mount --bind "$root" "$root"
for one in proc dev sys; do mount --rbind "/$one" "$root/$one"; done
mkdir -p "$root/mnt" "$root/opt/ours" "$root/.old"
mount --bind "$work" "$root/mnt"
mount --bind "$ours" "$root/opt/ours"
cd "$root"; pivot_root . .old; umount -l /.old
cd /mnt; export HOME=/root PYTHONPATH=/opt/ours PIP_CERT=/$CERTIFICATES SSL_CERT_FILE=/$CERTIFICATES
exec "$@"
"""
OURS = Path(__file__).parents[2] / "packages/sandbox/src"


def make_root(root: Path) -> None:
    """It trusts whom this machine trusts, and asks the same name servers."""
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", _INCLUDED, "trixie", root], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    shutil.copy(f"/{AUTHORITIES}", root / AUTHORITIES)


def inside(root: Path, work: Path, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """A program that has it as its own root file system, `work` at /mnt, and our sandbox to import."""
    enter = f"CERTIFICATES={AUTHORITIES}{_ENTER}"
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", enter, "sh", *map(str, (root, work, OURS))]
    return subprocess.run([*words, *argv], capture_output=True, text=True, check=False)


def make_image(root: Path, folder: Path, workdir: str) -> None:
    """An OCI layout of it, without what was installed beside Debian's packages."""
    left_out = [f"--exclude=./{one}/*" for one in ("opt", "proc", "sys", "dev", "tmp", "usr/share/doc", "var/lib/apt")]
    layer = subprocess.run(["tar", "-C", str(root), *left_out, "-cf", "-", "."], capture_output=True, check=True).stdout
    Layout(folder).add(layer, zipped=False, Env=["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], WorkingDir=workdir)
