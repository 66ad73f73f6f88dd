#!/bin/sh
# Debian 12's own runsc (2022) cannot run `ls`: this installs the one of its backports, pinned by version and sha256.
# The machine's sources stay as they are; the archive is where they say it is. Needs root. On amd64 only.
set -eu
version='0.0~20240729.0-4~bpo12+2'
sum=afdde883e3876ea807e19c708d4432674a20cb10186a7a5b554d62f38ea8de46
[ "$(dpkg-query -W -f '${Version}' runsc 2>/dev/null || true)" != "$version" ] || exit 0
archive() { apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Release: bookworm' 2>/dev/null | head -n 1; }
archive=$(archive)
[ -n "$archive" ] || { apt-get update -qq; archive=$(archive); }
[ -n "$archive" ] || { echo "this is not Debian 12: install runsc of 2024 or later yourself, see gvisor.dev" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive bookworm-backports main" > "$work/sources.list"
: > "$work/status"
cat > "$work/apt.conf" <<CONF
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
CONF
export APT_CONFIG="$work/apt.conf"
apt-get update -qq
(cd "$work" && apt-get download -qq "runsc=$version")
echo "$sum  $(echo "$work"/runsc_*.deb)" | sha256sum --check --quiet
dpkg --install "$work"/runsc_*.deb
