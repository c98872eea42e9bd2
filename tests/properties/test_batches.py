"""Whatever rows come, batches are cut by the rules: none over batch.size unless one record is, nothing lost."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.append.receipt import SendReceipt
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.unit.scripted_engine import TOPIC, Engine

_rows = st.lists(
    st.tuples(st.integers(-1, 2), st.one_of(st.none(), st.binary(max_size=6)), st.integers(0, 400)), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(
    appends=st.lists(_rows, max_size=4),
    batch_size=st.integers(0, 1500),
    stamped=st.booleans(),
    linger_ms=st.sampled_from([0, 5, 10_000]),
)
def test_batches_hold_every_row_once_in_order_within_batch_size(appends, batch_size, stamped, linger_ms):
    engine = Engine(partitions=3, batch_size=batch_size, linger_ms=linger_ms)
    engine.connect()
    receipt = SendReceipt()
    numbers = iter(range(10_000))
    expected: dict[int, list[bytes]] = {}
    for rows in appends:
        values = [b"%d:" % next(numbers) + b"v" * size for _, _, size in rows]
        for (partition, _, _), value in zip(rows, values, strict=True):
            expected.setdefault(partition, []).append(value)
        columns = RecordColumns(
            pa.array([key for _, key, _ in rows], pa.binary()),
            pa.array(values, pa.binary()),
            timestamps=np.array([len(value) * 10**6 for value in values], np.int64) if stamped else None,
        )
        partitions = np.array([row[0] for row in rows], np.int32)
        engine.parts.appender.append(TopicColumn.of(TOPIC), columns, partitions, receipt)
        engine.spin(3)
    engine.settle()
    receipt.wait(0)
    batches = [batch for log in engine.logs.values() for batch in log.batches]
    assert all(batch.header.size <= batch_size or len(batch.records) == 1 for batch in batches)
    written = {partition: log.values for partition, log in engine.logs.items()}
    assert sorted(chain(*written.values())) == sorted(chain(*expected.values()))
    for partition, values in expected.items():
        if partition >= 0:
            assert [value for value in written[partition] if value in set(values)] == values
    assert engine.memory_is_free()
