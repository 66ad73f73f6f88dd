#!/bin/sh
# The ordinary tests on a newer Python than this machine's: newer_python.sh PLACE [VERSION [PYTEST ARGUMENT...]]
# PLACE gets a Debian testing of its own, 1 GB, kept for the next time. As root, where unshare and debootstrap are.
set -eu
place=$(realpath -m "$1"); version=${2:-3.14}; [ $# -lt 2 ] && shift || shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ ! -e "$place/etc/debian_version" ]; then
  debootstrap --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --variant=minbase --include=ca-certificates testing "$place" http://deb.debian.org/debian \
    /usr/share/debootstrap/scripts/sid
fi
# In a mount namespace, with its root really changed: in a mere chroot no sandbox can be made.
exec unshare --mount --propagation private sh -c '
place=$1 root=$2 version=$3; shift 3
mount --rbind "$place" "$place"
for shown in /proc /dev /sys /etc/ssl/certs /etc/resolv.conf /etc/xdg /opt "$root"; do
  [ -e "$shown" ] || continue
  [ -d "$shown" ] && mkdir -p "$place$shown" || touch "$place$shown"
  mount --rbind "$shown" "$place$shown"
done
cd "$place"; mkdir -p old; pivot_root . old; cd "$root"; umount -l /old
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
if [ ! -x "/usr/bin/python$version" ]; then
  apt-get -o Acquire::Check-Valid-Until=false update -qq
  apt-get install -y -qq --no-install-recommends "python$version" "python$version-venv" python3 git make gcc libc6-dev \
    linux-libc-dev bubblewrap procps iproute2 curl patch e2fsprogs tmux zsh fish strace openssh-client openssh-server \
    postgresql chromium python3-pip musl-tools uidmap qemu-user util-linux file >/dev/null
fi
venv=/srv/venv-$version
"python$version" -m venv "$venv"
"$venv/bin/pip" install -q -r requirements.lock -r requirements-dev.lock
"$venv/bin/pip" install -q --no-deps -e packages/sandbox -e packages/stockade
git config --global --replace-all safe.directory "*"
# Not: what .venv of this checkout does, what another compiler makes, and GNU patch 2.8, which takes no name with a newline.
exec env STOCKADE_TEST_SCALE=0.1 "$venv/bin/python" -m pytest -p no:cacheprovider --numprocesses 4 --dist worksteal \
  --deselect tests/docs/test_site.py --deselect tests/unit/sandboxes/test_shipped_programs.py::test_what_is_shipped_is_what_the_sources_make \
  --deselect "tests/unit/sandboxes/test_folders/test_diff.py::test_the_whole_review_applies_with_real_tools[patch]" \
  -m "not slow and not long and not model and not toolchain" "$@"
' sh "$place" "$root" "$version" "$@"
