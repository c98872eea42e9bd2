"""A query whose transactions are named by its checkpoint: spelled otherwise, copied."""

import os
import shutil

import pytest

from tests.spark.writes import expected, numbers, stream, streaming

pytestmark = pytest.mark.jvm


@pytest.fixture
def unnamed(to_topic):
    """Without transactionalIdPrefix."""
    return {**to_topic, "deliveryGuarantee": "exactly-once"}


def test_a_query_goes_on_however_its_checkpoint_is_spelled(spark, topic, unnamed, tmp_path):
    """Declarative pipelines spell it in one way when it is new, and in another when it is there."""
    path = tmp_path / "checkpoint"
    spellings = [str(path), f"file:{path}", f"file://{path}/", os.path.relpath(path), f"{tmp_path}/x/../checkpoint"]
    for batch, spelled in enumerate(spellings):
        frame = streaming(numbers(spark, 100 * batch, 100 * (batch + 1)), tmp_path / "in")
        assert stream(frame, unnamed, spelled) == [batch]
    assert topic.values() == expected(0, 500)


def test_a_copied_checkpoint_writes_nothing_that_its_original_has_written(spark, topic, unnamed, tmp_path):
    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")
    stream(frame, unnamed, tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    frame = streaming(numbers(spark, 100, 200), tmp_path / "in")
    for checkpoint in ("checkpoint", "copy"):
        assert stream(frame, unnamed, tmp_path / checkpoint) == [1]
        assert topic.values() == expected(0, 200)
