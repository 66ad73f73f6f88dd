"""A sandbox on another machine: the Sandbox port carried over TCP between two that share a token (docs/remote.md)."""
