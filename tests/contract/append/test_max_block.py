"""max.block.ms is spent once a call, wherever it waits."""

import pytest

from spark_kafka_sink import ProducerRecord
from tests.unit.scripted_engine import Engine


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.parts.records.put(ProducerRecord("t", b"v"), None, b"v"),
        lambda engine: engine.append([b"v"]),
        lambda engine: engine.append([b"v" * 10_000] * 2),
    ],
    ids=["send", "append_columns, few", "append_columns, many"],
)
def test_a_call_has_one_deadline_for_metadata_and_memory(monkeypatch, call):
    """Each wait got max.block.ms whole: 1.5 s were configured, 2.7 s waited."""
    engine = Engine(max_block_ms=1_000, linger_ms=5, buffer_memory=400_000).connect()
    granted = []

    def note(target, name):
        method = getattr(target, name)

        def waited(*arguments):
            granted.append((name, arguments[-1]))
            engine.clock.advance(700)
            return method(*arguments)

        monkeypatch.setattr(target, name, waited)

    note(engine.parts.metadata, "wait_for_topics")
    note(engine.parts.pool, "take")
    call(engine)
    assert granted == [("wait_for_topics", 1_000), ("take", 300)]
