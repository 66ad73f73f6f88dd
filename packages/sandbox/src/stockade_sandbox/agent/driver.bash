# The persistent shell. The agent runs this text with `bash -c`, on these descriptors:
#   50 text of the command (a memfd)   51, 52 triggers (pipes)   53 reports to the agent   54, 55 stdout and stderr (one pipe, or two)
#   56, 57 exported variables and current folder, as of the last report (memfds that the agent empties)
# Every command is evaluated at top level of this very process, so all that it changes stays. After each, a frozen
# fork of the shell (the checkpoint) takes the place of the one before it; the agent thaws it when this shell is lost.
# A shell that has run nothing needs none: a fresh one is the same.
#
# Why it looks like this: options, traps, functions and IFS are the command's to change, so nothing here depends on
# them. The loop's own output goes to /dev/null (xtrace, DEBUG traps). The condition is a keyword that no function can
# shadow, and that ends the loop under `set -n`. A command's stray `break` leaves the loop, which then starts again.
builtin unset BASH_EXECUTION_STRING
__stockade_bash=$BASH __stockade_in=51 __stockade_other=52 __stockade_id=0 __stockade_kept=0 __stockade_status=0
__stockade_text=()

# D ID STATUS FLAG: the command has ended. A function named `builtin` would shadow all that follows, so it goes.
__stockade_report() {
    __stockade_opts=$- __stockade_probe=
    \builtin local __stockade_probe=y -
    if [[ $__stockade_probe != y ]]; then
        POSIXLY_CORRECT=y
        unset -f builtin
        unset POSIXLY_CORRECT
        builtin local -
    fi
    builtin set +eu
    __stockade_self=$BASHPID
    builtin export -p >&56
    builtin pwd -L >&57
    builtin printf '\rD %s %s %s\n' "$__stockade_id" "$__stockade_status" "${1-}" >&53
}

# The checkpoint: asleep until the agent wants it. Subshells lose traps and errexit, so they are set again; those
# started with `&` ignore SIGINT and SIGQUIT until these had a trap.
__stockade_freeze() {
    builtin local -a __stockade_go
    builtin mapfile -t -n 1 -u "$__stockade_other" __stockade_go
    [[ ${__stockade_go-} == go ]] || builtin exit 0
    builtin eval "__stockade_in=$__stockade_other __stockade_other=$__stockade_in __stockade_kept="
    __stockade_go=$(builtin trap -p)
    builtin trap : INT QUIT
    builtin trap - INT QUIT
    builtin eval "$__stockade_go"
    if [[ $__stockade_opts == *e* ]]; then builtin set -e; fi
}

# Parses and runs nothing: with noexec on, eval only reads; `local -` puts the option back.
__stockade_parses() {
    builtin local -
    builtin eval "\\builtin set -n
$1"
}

# N: waiting for a command. Returns with its text at hand and the last command's status in $?.
__stockade_next() {
    builtin local -
    builtin local -a __stockade_go
    builtin set +eu
    builtin printf '\rN\n' >&53
    until [[ a == b ]]; do
        __stockade_go=()
        builtin mapfile -t -n 1 -u "$__stockade_in" __stockade_go
        __stockade_id=${__stockade_go-}
        [[ $__stockade_id ]] || builtin exit 0
        __stockade_text=()
        builtin mapfile -t -d '' -u 50 __stockade_text
        __stockade_parses "${__stockade_text-}" && builtin break
        builtin printf %s "${__stockade_text-}" | "$__stockade_bash" -O extglob -n >&55 2>&55 50<&- 51<&- 52<&- 53>&- 54>&- 55>&- 56>&- 57>&-
        [[ $? == 2 ]] || builtin break
        __stockade_status=2
        __stockade_report s
    done
    builtin set -- "$__stockade_status"
    __stockade_status=0
    builtin return "$1"
}

# Joined to one line, as the text of the agent's `-c` is: bash counts from there, and errors then say "line 1".
__stockade_main='{
until [[ a == b ]]; do
__stockade_report;
if [[ $__stockade_id != "$__stockade_kept" ]]; then __stockade_kept=$__stockade_id;
case "$( ( { __stockade_freeze; \builtin eval "$__stockade_main"; } >/dev/null 2>&1 ) >&54 2>&55 &
\builtin printf "\\rK %s %s\n" "$!" "$__stockade_self" >&53 )" in esac;
fi;
__stockade_next;
\builtin eval -- "${__stockade_text-}" </dev/null >&54 2>&55 50<&- 51<&- 52<&- 53>&- 54>&- 55>&- 56>&- 57>&-;
__stockade_status=$? __stockade_text=();
done;
\builtin eval "$__stockade_main";
} >/dev/null 2>&1'
__stockade_main=${__stockade_main//$'\n'/ }
builtin readonly __stockade_main
builtin readonly -f __stockade_report __stockade_freeze __stockade_parses __stockade_next
