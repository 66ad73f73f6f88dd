#!/bin/sh
# Builds the launcher: sh build.sh [OUTPUT]. CC as for the agent.
set -eu
cd "$(dirname "$0")"
out=${1:-launch-$(uname -m)}
exec env -i PATH="$PATH" HOME="$HOME" LC_ALL=C ${CC:-musl-gcc} -std=gnu11 -Os -static -s -Wall -Wextra -Werror \
    -ffunction-sections -fdata-sections -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,relro \
    -o "$out" launch.c mounts.c trace.c
