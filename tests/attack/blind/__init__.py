"""Sixty attacks from SECURITY.md's promises alone, by somebody who had read no code: docs/security/blind.md."""
