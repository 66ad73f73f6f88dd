"""What Stockade costs, beside others. `python bench/overhead.py --help`."""
