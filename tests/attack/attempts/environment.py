"""What the sandbox tells of who started it: variables, names, sockets that stand for somebody's rights."""

# ruff: noqa: E501 - a script stays in one piece

from tests.attack.attempts.attempt import Attempt

_HAS = '[ -n "${%s:-}" ] && echo FIRED'

ENVIRONMENT = (
    *(Attempt(f"the variable {name}", _HAS % name)
      for name in ("ATTACK_TOKEN", "SSH_AUTH_SOCK", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DBUS_SESSION_BUS_ADDRESS",
                   "XDG_RUNTIME_DIR", "DISPLAY", "VIRTUAL_ENV", "LD_PRELOAD", "PYTHONPATH", "BASH_ENV")),
    Attempt("the agent of keys", "python3 -c \"import os, socket; s = socket.socket(1);"
            " s.connect(os.environ['SSH_AUTH_SOCK'])\" && echo FIRED"),
    Attempt("variables of every process", "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -q '^OPENAI_API_KEY=' && echo FIRED"),
    Attempt("the path of the folder in any variable", "cat /proc/[0-9]*/environ | grep -qaF \"$FOLDER\" && echo FIRED"),
    Attempt("the home of the person in any variable", "cat /proc/[0-9]*/environ | tr '\\0' '\\n' |"
            " grep -qxF \"HOME=$HOST_HOME\" && echo FIRED"),
    Attempt("who the person is", "[ \"$(id -u)\" = 0 ] && echo FIRED"),
    Attempt("what the account may do besides", "id -G | tr ' ' '\\n' | grep -qx 0 && echo FIRED"),
)  # fmt: skip
