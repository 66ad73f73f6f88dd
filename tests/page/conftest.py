"""What the page's tests share with each other and with the server's."""

from tests.server.conftest import own, stage
from tests.server.test_page import browser, user

__all__ = ["browser", "own", "stage", "user"]
