"""As the tests of the product: a home of its own, no provider's variables, root's tests for root alone."""

from tests.conftest import _own_home, anyio_backend, pytest_collection_modifyitems

__all__ = ["_own_home", "anyio_backend", "pytest_collection_modifyitems"]
