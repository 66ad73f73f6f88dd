"""`python -m bench.ability`."""

from bench.ability.command import main

if __name__ == "__main__":
    main()
