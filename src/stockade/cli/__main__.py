"""`python -m stockade.cli` is `stockade`."""

from stockade.cli import main

main()
