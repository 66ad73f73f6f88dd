"""Data and ports. Imports the standard library and pydantic, nothing of ours outside this package."""
