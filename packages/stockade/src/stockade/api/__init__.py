"""Stockade as a library. The public names stand in the package itself: `from stockade import WritingBot`."""
