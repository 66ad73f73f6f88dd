from tests.cli.conftest import stage

__all__ = ["stage"]
