"""Rows without a key and brokers that take nothing (``partitioner.availability.timeout.ms``)."""

import pyarrow as pa

from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.unit.scripted_engine import TOPIC, Engine, Step


def append_unkeyed(engine: Engine, values: list[bytes]) -> None:
    columns = RecordColumns(value=pa.array(values, pa.binary()))
    engine.parts.appender.append(TopicColumn.of(TOPIC), columns, None, engine.receipt)


def stuck_engine(timeout_ms: int) -> Engine:
    """Two nodes lead a partition each; node 0 has a request it does not answer, and one more waits for it."""
    engine = Engine(
        partitions=2,
        nodes=2,
        max_in_flight_requests_per_connection=1,
        batch_size=1,
        partitioner_adaptive_partitioning_enable=False,
        partitioner_availability_timeout_ms=timeout_ms,
    )
    engine.connect()
    for node in (0, 1):
        engine.append([b"first"], partition=node)
        engine.spin()
    engine.steps.append(Step(hold=True))
    for _ in range(2):
        engine.append([b"held"], partition=0)
        engine.spin()
    return engine


def test_rows_without_a_key_avoid_a_node_that_has_taken_nothing_for_the_timeout():
    engine = stuck_engine(timeout_ms=500)
    engine.spin(501)
    append_unkeyed(engine, [b"free"] * 20)
    engine.spin()
    assert engine.values(1) == [b"first"] + [b"free"] * 20


def test_they_go_there_again_once_it_takes_data():
    engine = stuck_engine(timeout_ms=500)
    engine.spin(501)
    engine.release_held()
    engine.spin()
    append_unkeyed(engine, [b"free"] * 40)
    engine.spin()
    assert engine.values(0).count(b"free") > 0


def test_without_the_timeout_they_go_on_to_wait_for_it():
    engine = stuck_engine(timeout_ms=0)
    engine.spin(60_000 - 30_001)
    append_unkeyed(engine, [b"free"] * 40)
    engine.spin()
    assert 0 < engine.values(1).count(b"free") < 40
