"""The stage of the command-line tests."""

from tests.cli.conftest import stage

__all__ = ["stage"]
