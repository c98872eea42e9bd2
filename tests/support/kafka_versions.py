"""The mark for tests that run on other versions of Kafka than the fixture ``local_kafka`` does by default."""

from __future__ import annotations

import pytest


def on_kafka(*versions: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("local_kafka", versions, indirect=True, scope="session")
