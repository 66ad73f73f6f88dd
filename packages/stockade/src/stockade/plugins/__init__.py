"""Plug-ins: each uses only what a stranger's plug-in can use."""
