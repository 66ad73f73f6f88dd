"""`python -m stockade` is `stockade`."""

from stockade.cli import main

main()
