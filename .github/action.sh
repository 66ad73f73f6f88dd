# The step `run` of action.yml. No word of an input is a word of this script: they come as environment variables.
set -uo pipefail
out="$RUNNER_TEMP/stockade-run"
mkdir -p "$out"
words=(--folder "$FOLDER" --model "$MODEL" --no-input)
[ -z "$CHECK" ] || words+=(--check "$CHECK")
while IFS= read -r line; do [ -z "$line" ] || words+=(--protect "$line"); done <<<"$PROTECT"
while IFS= read -r line; do [ -z "$line" ] || words+=("$line"); done <<<"$ARGUMENTS"

stockade run --json "${words[@]}" -- "$TASK" >"$out/events.jsonl"
code=$?
field() { tail -n 1 "$out/events.jsonl" | python3 -c '
import json, sys
try:
    value = json.loads(sys.stdin.readline() or "{}").get(sys.argv[1])
except ValueError:
    value = None
print({True: "true", False: "false", None: ""}.get(value, value) if not isinstance(value, (dict, list)) else "")' "$1"; }
run=$(field run)
[ -n "$run" ] || exit $((code ? code : 4))  # it did not begin, and has said why
status=$(field status) verified=$(field verified)
stockade diff "$run" >"$out/change.patch"
stockade runs export "$run" --format junit --output "$out/junit-$run.xml" 2>/dev/null
# GitHub takes a summary of at most a mebibyte.
stockade runs export "$run" | head -c 1000000 >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
{
  echo "status=$status"
  echo "verified=$verified"
  echo "patch=$out/change.patch"
  echo "junit=$out/junit-$run.xml"
} >>"${GITHUB_OUTPUT:-/dev/null}"
if [ "$APPLY" = true ] && [ "$code" = 0 ]; then
  stockade apply "$run" || code=$?
fi
exit "$code"
