#!/bin/sh
# Builds the agent: sh build.sh [OUTPUT]. CC is the compiler, as words: Debian 12's musl-gcc gives the committed bytes of
# x86-64, zig's of PyPI those of aarch64. `make agent` builds both.
set -eu
cd "$(dirname "$0")"
out=${1:-agent-$(uname -m)}
exec env -i PATH="$PATH" HOME="$HOME" LC_ALL=C ${CC:-musl-gcc} -std=gnu11 -D_GNU_SOURCE -static -Os -s -Wall -Wextra \
    -Werror -Wl,--build-id=none -Wl,-z,noexecstack -fno-asynchronous-unwind-tables -ffunction-sections \
    -Wl,--gc-sections -ffile-prefix-map="$PWD"=. \
    -o "$out" agent.c shell.c job.c stream.c procs.c spawn.c connections.c programs.c text.c
