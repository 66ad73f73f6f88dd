"""The name of the bot that is no value."""

CODER = "coder"
"""It has a loop of its own, and this name on record."""
