"""Network and other ways to talk to processes of the host."""

# ruff: noqa: E501 - a script stays in one piece

from tests.attack.attempts.attempt import Attempt, c

_CONNECT = 'python3 -c "import socket,sys; socket.socket(1).connect(sys.argv[1].replace(chr(64), chr(0)))"'

NETWORK = (
    Attempt("a port of the host", "( exec 3<>/dev/tcp/127.0.0.1/$PORT ) && echo FIRED"),
    Attempt("a unix socket of the host", f'{_CONNECT} "$SOCKET" && echo FIRED'),
    Attempt("an abstract socket of the host", f'{_CONNECT} "@$ABSTRACT" && echo FIRED'),
    Attempt("a unix socket in the given folder", f"{_CONNECT} live.sock && echo FIRED"),
    Attempt("the host's connections", "grep -qi \":$(printf %04X $PORT) \" /proc/net/tcp && echo FIRED"),
    Attempt("a network device", "[ \"$(tail -n +3 /proc/net/dev | grep -vc ' *lo:')\" -gt 0 ] && echo FIRED"),
    c("shared memory of the host", "call(29, int(os.environ.get('SHM', '0')), 8, 0)"),
    Attempt("a port of the host by IPv6", "( exec 3<>/dev/tcp/::1/$PORT ) && echo FIRED"),
    Attempt("a port of the host by no address", "( exec 3<>/dev/tcp/0.0.0.0/$PORT ) && echo FIRED"),
    Attempt("a UDP port of the host", "exec 3<>/dev/udp/127.0.0.1/$UDP; echo x >&3; sleep 0.1; echo y >&3 && echo FIRED"),
    Attempt("the host's unix sockets", 'grep -q "$ABSTRACT" /proc/net/unix && echo FIRED'),
    Attempt("the host's routes", "[ $(wc -l < /proc/net/route) -gt 1 ] && echo FIRED"),
    Attempt("listing the host's segments", "[ $(wc -l < /proc/sysvipc/shm) -gt 1 ] && echo FIRED"),
    c("a route out", "s = socket.socket(2, 2); s.connect(('192.0.2.1', 9))"),
)  # fmt: skip
