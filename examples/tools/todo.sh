#!/bin/bash
# A list of things to do, in a file beside the work.
list="${TODO_FILE:?}"
case "$1" in
    add) shift; echo "$*" >>"$list" ;;
    list) [ -e "$list" ] && cat -n "$list" ;;
    done) sed -i "${2:?which number}d" "$list" ;;
    *) echo "todo add WORDS | todo list | todo done NUMBER" >&2; exit 2 ;;
esac
