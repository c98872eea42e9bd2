"""Rows ``LEFT_OUT`` of an append: the others are written as if they had been appended alone."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.partitioner import LEFT_OUT
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.unit.scripted_engine import TOPIC, Engine

ROWS = 900
LEFT = frozenset((0, 1, 17, 400, 401, 402, 898, 899))
KEPT = [row for row in range(ROWS) if row not in LEFT]


class Last:
    """A partitioner of a user that looks at nothing but the rows that name no partition."""

    def partition(self, topic, columns, explicit, sizes, count, load):
        assert explicit.min() >= -1
        return np.full(len(columns), count - 1)


def binary(values) -> pa.BinaryArray:
    return pa.array(list(values), pa.binary())


def columns(keyed: bool) -> RecordColumns:
    return RecordColumns(
        key=binary(b"%d" % row for row in range(ROWS)) if keyed else None,
        value=binary(None if row in LEFT else b"%03d" % row * 20 for row in range(ROWS)),
        timestamps=np.arange(ROWS) + 5,
    )


def append(engine: Engine, rows: RecordColumns, partitions) -> SendReceipt:
    receipt = SendReceipt()
    engine.parts.appender.append(TopicColumn.of(TOPIC), rows, np.array(partitions, np.int32), receipt)
    engine.settle()
    receipt.wait(0)
    return receipt


def written(engine: Engine) -> list[list[int]]:
    return [[int(value[:3]) for value in engine.values(partition)] for partition in range(len(engine.logs))]


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("named", [-1, 1])
@pytest.mark.parametrize(
    "options", [{}, {"partitioner_class": f"{__name__}:Last"}, {"partitions": 40, "buffer_memory": 1 << 17}]
)
def test_the_others_are_written_once_and_in_their_order(options, keyed, named):
    engine = Engine(**{"partitions": 3, "batch_size": 1000, "linger_ms": 1000, **options}).connect()
    given = [LEFT_OUT if row in LEFT else named for row in range(ROWS)]
    receipt = append(engine, columns(keyed), given)
    rows = written(engine)
    assert sorted(chain(*rows)) == KEPT
    assert all(each == sorted(each) for each in rows)
    assert sum(each.count for each in receipt.deliveries.values()) == len(KEPT)
    assert engine.memory_is_free()
    if named != -1:
        assert rows[1] == KEPT


def test_keys_go_where_they_go_without_the_rows_left_out():
    alone, beside = Engine(partitions=5), Engine(partitions=5)
    for engine in (alone, beside):
        engine.connect()
    append(beside, columns(keyed=True), [LEFT_OUT if row in LEFT else -1 for row in range(ROWS)])
    append(alone, columns(keyed=True).take(np.array(KEPT)), [-1] * len(KEPT))
    assert written(beside) == written(alone)


def test_a_row_left_out_may_be_larger_than_any_limit_and_is_not_copied():
    engine = Engine(partitions=2, max_request_size=10_000, buffer_memory=100_000).connect()
    rows = [b"a", b"x" * 9_000, b"y" * 5_000_000, b"x" * 9_000, b"b"]
    before = pa.total_allocated_bytes()
    append(engine, RecordColumns(value=binary(rows)), [0, 0, LEFT_OUT, 0, 0])
    assert [len(value) for value in engine.values()] == [1, 9_000, 9_000, 1]
    assert pa.total_allocated_bytes() - before < 5_000_000 + 1_000_000
    assert engine.memory_is_free()
