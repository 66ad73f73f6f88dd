"""A sandbox on another machine: the Sandbox port over HTTP, /v1/sandboxes (docs/remote.md)."""
