"""HumanEval with the coder: what repairs are worth, and which part of them. `python -m bench.humaneval --help`."""
