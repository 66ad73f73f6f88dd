"""Sandboxes of this machine for another one, over HTTP: /v1/sandboxes (docs/remote.md). Needs the extra `serve`."""
