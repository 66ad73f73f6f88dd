"""Answer protocols: each against the suite."""

import pytest

from stockade.answers.choice import PROTOCOLS, make_protocol
from stockade.core.ports import AnswerProtocol
from stockade.testing.conformance.answers import AnswerConformance


@pytest.mark.parametrize("name", PROTOCOLS)
class TestProtocols(AnswerConformance):
    @pytest.fixture
    def protocol(self, name: str) -> AnswerProtocol:
        return make_protocol(name)
