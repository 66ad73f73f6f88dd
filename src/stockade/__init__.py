"""Stockade runs LLM agents where they can do no harm."""

__version__ = "0.1.0"
