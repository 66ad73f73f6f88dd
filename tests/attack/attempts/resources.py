"""What a machine has only so much of."""

# ruff: noqa: E501 - a script stays in one piece

from tests.attack.attempts.attempt import Attempt

_FILL = "head -c 100M /dev/zero > $f; s=$(stat -c %s $f); rm -f $f; [ $s = 104857600 ] && echo FIRED"

TOTAL = "memory: 268435456 bytes in total"
"""Of memory."""

RESOURCES = (
    Attempt("300 processes", """python3 - <<'PY' && echo FIRED
import os, sys, signal
pids = []
try:
    for _ in range(300):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        pids.append(pid)
except OSError:
    pass
for pid in pids: os.kill(pid, 9); os.waitpid(pid, 0)
sys.exit(0 if len(pids) == 300 else 1)
PY"""),
    Attempt("600 MB of memory", "python3 -c \"x = bytearray(600 << 20)\" && echo FIRED"),
    Attempt("100 MB in /tmp", f"f=/tmp/.stockade-fill; {_FILL}"),
    Attempt("100 MB in /dev/shm", f"f=/dev/shm/.stockade-fill; {_FILL}"),
    Attempt("a file of 100 MB in the folder", f"f=fill; {_FILL}", ends=True),  # as large as the disk may be
    Attempt("a sparse file of 1 TB", "truncate -s 1T sparse && rm sparse && echo FIRED"),
    Attempt("5000 open files", "python3 -c \"x = [open('/dev/null') for _ in range(5000)]\" && echo FIRED"),
    Attempt("raising a limit", "ulimit -Sn 3000 && echo FIRED"),
    Attempt("200 MB in the folder, in small files", "for i in $(seq 25); do head -c 8M /dev/zero > part-$i; done; sleep $PAUSE;"
            " [ -e part-25 ] && echo FIRED", ends=True),
    Attempt("200 MB in the folder, removed but open", "for i in $(seq 25); do exec {fd}> gone; rm gone;"
            " head -c 8M /dev/zero >&$fd; done; sleep $PAUSE; echo FIRED", ends=True),
    Attempt("20000 files in the folder", "i=0; while [ $i -lt 20000 ]; do : > n$((i+=1)) || exit; done; sleep $PAUSE;"
            " echo FIRED", ends=True),
    Attempt("30000 files in /tmp", "python3 -c \"import os; os.makedirs('/tmp/.many'); "
            "[os.mknod(f'/tmp/.many/{i}') for i in range(30000)]\" && echo FIRED; rm -rf /tmp/.many"),
    Attempt("200 MB in folders nested 300 deep", "for i in $(seq 300); do mkdir d && cd -P d || exit; done; for i in"
            " $(seq 25); do head -c 8M /dev/zero > part-$i; done; sleep $PAUSE; [ -e part-25 ] && echo FIRED", ends=True),
    Attempt("a flood of output", "head -c 50M /dev/zero | tr '\\0' x", mark="OUTPUT:1000000"),
    Attempt("a flood of errors", "head -c 50M /dev/zero | tr '\\0' x >/dev/stdout", mark="OUTPUT:1000000"),
    Attempt("400 MB of memory in four processes", "for i in 1 2 3 4; do python3 -c \"x = bytearray(b'x') * (100 << 20);"
            " import time; time.sleep(1); print('ok')\" & done | grep -c ok | grep -q 4 && echo FIRED", promise=TOTAL),
    Attempt("memory that is shared", "python3 -c \"import mmap; m = mmap.mmap(-1, 400 << 20);"
            " [m.write(bytes(1 << 20)) for _ in range(400)]\" && echo FIRED", promise=TOTAL),
    Attempt("memory in a nameless file", "python3 -c \"import os; f = os.memfd_create('x');"
            " [os.write(f, bytes(1 << 20)) for _ in range(400)]; assert os.fstat(f).st_size == 400 << 20\" && echo FIRED"),
    Attempt("locked memory", "python3 -c \"import ctypes, mmap; m = mmap.mmap(-1, 64 << 20);"
            " a = ctypes.addressof(ctypes.c_char.from_buffer(m)); import sys;"
            " sys.exit(-ctypes.CDLL(None).mlock(ctypes.c_void_p(a), ctypes.c_size_t(64 << 20)))\" && echo FIRED"),
    Attempt("200 threads", "python3 -c \"import threading, time; t = [threading.Thread(target=time.sleep, args=(1,))"
            " for _ in range(200)]; [x.start() for x in t]\" && echo FIRED"),
    Attempt("a core dump", "ulimit -c unlimited && echo FIRED"),
)  # fmt: skip
