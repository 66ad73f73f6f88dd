"""What small models do not see, found without asking a model: before an action, after it, and before the end.

`before` asks about an action that is surely not meant (`commands`, `tables`, `logs`, `writing`); `after` tells what
an error does not say; `review` shows what has really changed, with what is plainly `undone` of what the task `wanted`.
Each rule was seen to be needed with the default model on `bench/ability` (docs/ability.md), is of use in any folder,
and costs a turn at most: the same action a second time is done. The commands that are proposed have no double quotes,
backslashes or parentheses where that can be: a small model that answers in JSON loses them.
"""
