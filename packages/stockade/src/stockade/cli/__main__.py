"""`python -m stockade.cli` is `stockade`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder: what lies there, a json.py, is not ours to run

from stockade.cli import main

main()
