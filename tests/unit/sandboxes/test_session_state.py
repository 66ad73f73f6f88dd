"""What stays from command to command, and what no command can break."""

from pathlib import Path

import pytest

from stockade_sandbox.agent.session import AgentConfig
from tests.unit.sandboxes.session_support import NAMESPACE, agent, deadly, shell

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("cd /usr/bin", "pwd", b"/usr/bin\n"),
        ("x='a  b'; export y=2", 'echo "$x" $(printenv y)', b"a  b 2\n"),
        ("f() { echo f $1; }", "f 3", b"f 3\n"),
        ("a=(1 'two words' 3); declare -A m=([k]=v)", 'echo "${a[1]}" ${#a[@]} ${m[k]}', b"two words 3 v\n"),
        ("umask 027", "umask", b"0027\n"),
        ("set -o pipefail; shopt -s nullglob", "false | true; echo $?; echo /no*such", b"1\n\n"),
        ("shopt -s expand_aliases; alias hi='echo hello'", "hi there", b"hello there\n"),
        ("set -- a 'b c'", 'echo $# "$2"', b"2 b c\n"),
        ("false", "echo $?", b"1\n"),
        ("(exit 42)", "echo $?", b"42\n"),
        ("sleep 30 & p=$!", "[[ $! == $p ]] && kill $p && wait $p; echo $?", b"143\n"),
        ("sleep 0.05 && exit 7 &", "wait $!; echo $?", b"7\n"),
        ("sleep 30 &", "jobs -r | grep -c sleep; kill %1", b"1\n"),
        ("exec 7>/dev/null; exec {free}>/dev/null", "echo x >&7 && echo y >&$free && echo open", b"open\n"),
        ("trap 'echo caught' USR1", "kill -USR1 $BASHPID", b"caught\n"),
        ("local x=1 2>/dev/null; declare z=5", "echo $z", b"5\n"),
        ("HISTCONTROL=x; readonly r=1; declare -i n=2+3", "echo $r $n", b"1 5\n"),
        ("break; echo not reached", "echo on", b"on\n"),
        ("continue", "echo on", b"on\n"),
        ("return 3", "echo on", b"on\n"),
    ],
)
async def test_state_goes_on(first: str, second: str, expected: bytes) -> None:
    async with shell() as session:
        await session.run(first)
        out = await session.run(second)
    assert (out.stdout, out.stderr, out.shell_event) == (expected, b"", None)


HOSTILE = [
    "exec 1>&-",
    "exec 2>&-",
    "exec 0<&-",
    "exec >/dev/null 2>&1",
    "trap 'echo x' DEBUG",
    "trap 'exit' ERR",
    "trap 'echo bye' EXIT",
    "set -u",
    "set -f",
    "set -C",
    "set -v",
    "set -o posix",
    "IFS=:",
    "readonly IFS PATH",
    "IFS=0123456789",
    "PATH=",
    "unset PATH HOME PWD IFS",
    "TMOUT=1",
    "LC_ALL=C; LANG=nonsense",
    "ulimit -n 64",
    "shopt -s extdebug extglob failglob nullglob dotglob",
    "echo() { builtin exit 3; }; read() { :; }; eval() { :; }; printf() { :; }; mapfile() { :; }; set() { :; }; "
    "local() { :; }; exit() { :; }; return() { :; }",
    "builtin() { builtin() { :; }; }; command() { :; }",
    "shopt -s expand_aliases; alias builtin=exit eval=exit case=exit",
    "for i in {3..255}; do echo D 1 0 >&$i; printf garbage >&$i; done 2>/dev/null",
    "set -T; set -E",
    "POSIXLY_CORRECT=1",
    "__stockade_status=nonsense; unset __stockade_text",
]


@pytest.mark.parametrize("command", HOSTILE)
async def test_no_setting_breaks_the_next_commands(command: str) -> None:
    async with shell(timeout_s=5.0) as session:
        await session.run(command)
        for _ in range(2):
            out = await session.run("\\builtin printf 'still here'")
            assert b"still here" in out.stdout
            assert b"stockade" not in out.output
            assert not out.timed_out


@pytest.mark.parametrize(
    "command",
    [
        "unset -f __stockade_next __stockade_report",
        "__stockade_next() { :; }",
        "__stockade_main=:",
        "__stockade_in=99",
        "__stockade_in=99 __stockade_other=99",
        "readonly __stockade_in=51 __stockade_id=1 __stockade_text=x",
        "readonly __stockade_status=0",
        "unset __stockade_bash",
    ],
)
async def test_a_command_that_attacks_the_driver_is_never_repeated(command: str, tmp_path: Path) -> None:
    async with shell(timeout_s=1.0) as session:
        await session.run(f"echo once >> {tmp_path}/once; {command}; echo $?")
        for _ in range(3):
            await session.run("echo maybe")
        out = await session.run(f"echo on; cat {tmp_path}/once")
    assert out.stdout == b"on\nonce\n"


async def test_xtrace_shows_the_command_and_nothing_of_the_driver() -> None:
    async with shell(streams="separate") as session:
        await session.run("set -x")
        out = await session.run("echo hi")
        restored = await session.run("exit 3")
        after = await session.run("echo ho")
    assert out.stderr.lstrip(b"+") == b" echo hi\n"
    assert restored.stderr.lstrip(b"+") == b" exit 3\n"
    assert after.stderr.lstrip(b"+") == b" echo ho\n"


async def test_traps_and_options_survive_a_restored_shell() -> None:
    async with shell() as session:
        await session.run("trap 'echo \"it'\\''s caught\"' USR1; set -u; set -o pipefail; shopt -s extglob")
        assert (await session.run("exit 1")).shell_event == "shell_restored"
        out = await session.run("kill -USR1 $BASHPID; [[ $- == *u* ]] && shopt -q extglob && echo kept")
    assert out.stdout == b"it's caught\nkept\n"


async def test_children_of_a_restored_shell_can_be_interrupted() -> None:
    async with shell() as session:
        await session.run("exit 1")
        out = await session.run("timeout -s INT 0.05 sleep 5; echo $?")
    assert out.stdout == b"124\n"


async def test_a_deleted_folder(tmp_path: Path) -> None:
    async with shell(cwd="/") as session:
        await session.run(f"mkdir -p {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone")
        assert (await session.run("echo on")).stdout == b"on\n"
        assert (await session.exec(["pwd"])).stdout == b"/\n"
        assert (await session.run("cd /usr; pwd")).stdout == b"/usr\n"


async def test_exec_runs_in_the_folder_of_the_shell() -> None:
    async with shell() as session:
        await session.run("cd /usr/lib")
        result = await session.exec(["sh", "-c", "pwd; cat; echo no >&2; exit 4"], stdin=b"in\0put")
    assert (result.exit_code, result.stdout, result.stderr) == (4, b"/usr/lib\nin\0put", b"no\n")


async def test_exec_of_what_cannot_be_executed() -> None:
    async with shell() as session:
        missing = await session.exec(["/no/such"])
        refused = await session.exec(["/etc/passwd"])
    assert (missing.exit_code, missing.stderr) == (127, b"/no/such: No such file or directory\n")
    assert (refused.exit_code, refused.stderr) == (126, b"/etc/passwd: Permission denied\n")


async def test_it_also_works_when_it_is_not_pid_1() -> None:
    async with agent(prefix=()) as (session, _):
        assert (await session.run("x=1; cd /usr; sleep 30 & exit 3")).exit_code == 3
        out = await session.run("(setsid sleep 31 &); sleep 30", timeout_s=0.1)
        assert (out.exit_code, out.timed_out, out.cwd) == (124, True, "/tmp")
        assert (await session.exec(["echo", "hi"])).stdout == b"hi\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("export A='b c'", 'declare -x A="b c"'),
        ("export A=1; unset A", None),
        ("export A=1; exit", None),
        ("export A=1; kill -9 $$", None),
        ("export A=1; f() { echo no; }; export() { f; }; printf() { f; }", 'declare -x A="1"'),
        ("set -uo pipefail; set -C -f; export A=1; false", 'declare -x A="1"'),
        ("export A=1; (export A=2; exec 56>&-; echo x >&56)", 'declare -x A="1"'),
        ("export A=1; ((", None),
    ],
)
async def test_the_shell_says_what_it_exports(command: str, told: str | None) -> None:
    async with shell() as session:
        await session.run("export KEPT=1")
        await session.run(command)
        exports = (session.exports or "").splitlines()
        again = (await session.run("builtin export -p")).stdout.decode()
    assert [line for line in exports if line.startswith("declare -x A=")] == ([told] if told else [])
    assert 'declare -x KEPT="1"' in exports
    assert "\n".join(exports) + "\n" == again


async def test_exports_that_are_too_long_are_not_told() -> None:
    async with shell() as session:
        await session.run("export A=1")
        told = session.exports
        assert (await session.run("export B=$(printf %070000d 0)")).exit_code == 0
        assert session.exports == told
        await session.run("unset B; export A=2")
        assert 'declare -x A="2"' in (session.exports or "")


async def test_a_shell_started_afresh_says_what_it_exports() -> None:
    async with shell() as session:
        await session.run("export A=1")
        out = await session.run(deadly("kill -9 -1; exit 5"))
        assert out.shell_event == "shell_restarted"
        assert "A=" not in (session.exports or "A=")


FORGED = "for f in {10..40}; do printf '\\r%s\\n' >&$f; done 2> /dev/null"


@pytest.mark.parametrize("report", ["N", "K 5 5", "D 1000 0", "D", "hello"])
async def test_a_report_out_of_turn_restarts_the_shell(report: str) -> None:
    """From a fork of the shell that was left to write it: only these have the descriptors."""
    async with shell() as session:
        await session.run("x=5")
        forged = await session.run(f"x=6; {FORGED % report}; sleep 50")
        assert (forged.exit_code, forged.shell_event) == (137, "shell_impersonated")
        assert (await session.run("echo $x")).stdout == b"5\n"
        await session.run(f"( {FORGED % report} ) > /dev/null 2>&1 & sleep 0.01")
        afterwards = await session.run("wait; echo $x")
        assert afterwards.stdout.endswith(b"5\n")


async def test_a_shell_that_others_can_open_is_named(tmp_path: Path) -> None:
    """No copy is made of a script; gVisor runs none that may not be read (test_gvisor_live.py)."""
    script = tmp_path / "bash"
    script.write_text('#!/bin/sh\nexec /bin/bash "$@"\n')
    script.chmod(0o755)
    async with shell(shell=(str(script), "--norc", "--noprofile")) as session:
        assert session.is_readable
        assert (await session.run('[ "$(ls /proc/$$/fd)" ] && echo open')).stdout == b"open\n"
    async with shell() as session:
        assert not session.is_readable


TRIED = (
    "mknod made c 1 3", "mkdir -p on && mount -t tmpfs none on", "mount --bind on on",
    "touch moved && mkdir -p into && mv moved into/ && ln into/moved again",
)  # fmt: skip


@pytest.mark.root
async def test_landlock_holds_by_itself(tmp_path: Path) -> None:
    """Without filter, other user or dropped right: root in a pid namespace, as which all of it works otherwise."""
    config = AgentConfig(cwd=str(tmp_path), grace_s=0.2, timeout_s=20)
    found = []
    for only in (("setpriv", "--no-new-privs"), ()):
        async with agent(config, ("unshare", "-m", *NAMESPACE[1:], *only)) as (session, _):
            found.append([(await session.run(command)).exit_code == 0 for command in TRIED])
            await session.run("rm -rf made into again")
    assert found == [[False, False, False, True], [True] * len(TRIED)]
