"""Sandboxes for programs that nobody has read: policy, backends, one shell that persists, diff, apply, undo, egress.

Knows nothing of models or agents. Read api.py for the public class, backends/bubblewrap/argv.py for what is enforced.
"""
