from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.security.clusters import LISTENERS


@pytest.fixture
def secure_broker() -> Iterator[TestBroker]:
    """The listeners of ``secure_kafka`` in this process."""
    with TestBroker(nodes=2, listeners=LISTENERS) as broker:
        yield broker
