#!/bin/sh
# Builds the agent for this machine beside the sources, or at $1. Same musl-gcc, same bytes. `make agent` calls it.
set -eu
cd "$(dirname "$0")"
out=${1:-agent-$(uname -m)}
"${CC:-musl-gcc}" -std=gnu11 -D_GNU_SOURCE -static -Os -s -Wall -Wextra -Werror -Wl,--build-id=none -Wl,-z,noexecstack \
    -fno-asynchronous-unwind-tables -ffunction-sections -Wl,--gc-sections -ffile-prefix-map="$PWD"=. \
    -o "$out" agent.c shell.c job.c stream.c procs.c spawn.c connections.c programs.c text.c
