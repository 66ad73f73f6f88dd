"""One part of each kind for Stockade."""
