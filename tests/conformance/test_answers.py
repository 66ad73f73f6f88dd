"""Answer protocols: each against the suite."""

import pytest

from stockade.core.ports import AnswerProtocol
from stockade.testing.conformance.answers import AnswerConformance
from tests.support.parts import PROTOCOLS, make_protocol


@pytest.mark.parametrize("name", PROTOCOLS)
class TestProtocols(AnswerConformance):
    @pytest.fixture
    def protocol(self, name: str) -> AnswerProtocol:
        return make_protocol(name)
