#!/bin/sh
# Builds the launcher: sh build.sh [OUTPUT]. Debian 12's musl-gcc gives the committed bytes (apt-get install musl-tools).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/launch-$(uname -m)}
cd "$here"
exec env -i PATH="$PATH" LC_ALL=C ${CC:-musl-gcc} -std=gnu11 -Os -static -s -Wall -Wextra -Werror \
    -ffunction-sections -fdata-sections -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,relro \
    -o "$out" launch.c mounts.c
