"""The mark for tests that run on other versions of Kafka than the fixture ``local_kafka`` does by default."""

from __future__ import annotations

import pytest

TEST_BROKER = "TestBroker"
"""In place of a version, also of the fixture ``secure_kafka``: the test runs on a TestBroker and needs no JVM.

A release may follow: ``TestBroker 3.9``. The fixture ``cluster`` is then that broker.
"""


def on_kafka(*versions: str) -> pytest.MarkDecorator:
    """Before a merge, only the first real Kafka of these runs: each further one is a JVM that starts once more."""
    _, *others = [version for version in versions if not is_test_broker(version)]
    marked = [pytest.param(version, marks=pytest.mark.slow) if version in others else version for version in versions]
    return pytest.mark.parametrize("local_kafka", marked, indirect=True, scope="session")


def is_test_broker(version: object) -> bool:
    return str(version).startswith(TEST_BROKER)
