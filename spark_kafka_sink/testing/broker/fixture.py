"""The pytest fixture ``kafka_test_broker``; ``testing.pytest_plugin`` registers it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from spark_kafka_sink.testing.broker.broker import TestBroker


@pytest.fixture
def kafka_test_broker() -> Iterator[TestBroker]:
    """A ``TestBroker`` of one node for one test: no JVM, no files."""
    from spark_kafka_sink.testing.broker.broker import TestBroker

    with TestBroker() as broker:
        yield broker
