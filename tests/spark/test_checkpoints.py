"""A query whose transactions are named by its checkpoint, in whatever way that is spelled."""

import os

import pytest

from tests.spark.writes import expected, numbers, stream, streaming

pytestmark = pytest.mark.jvm


def test_a_query_goes_on_however_its_checkpoint_is_spelled(spark, topic, to_topic, tmp_path):
    """Declarative pipelines spell it in one way when it is new, and in another when it is there."""
    unnamed = {**to_topic, "deliveryGuarantee": "exactly-once"}  # without transactionalIdPrefix
    path = tmp_path / "checkpoint"
    spellings = [str(path), f"file:{path}", f"file://{path}/", os.path.relpath(path), f"{tmp_path}/x/../checkpoint"]
    for batch, spelled in enumerate(spellings):
        frame = streaming(numbers(spark, 100 * batch, 100 * (batch + 1)), tmp_path / "in")
        assert stream(frame, unnamed, spelled) == [batch]
    assert topic.values() == expected(0, 500)
