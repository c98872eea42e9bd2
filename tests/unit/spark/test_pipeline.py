"""The stages of a task's pipeline: which there are, in which order, and what they pass on."""

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.producer.append.receipt import RefusalReceipt
from spark_kafka_sink.producer.partitioning.partitioner import LEFT_OUT, NOT_GIVEN
from spark_kafka_sink.producer.task_meter import TaskMeter
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.spark.dead_letters.options import Reason
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline
from spark_kafka_sink.spark.read import AppendSize
from spark_kafka_sink.spark.rows import ILLEGAL_ARGUMENT, FaultKind, RejectedRows, Rows
from spark_kafka_sink.spark.schema import RowLayout
from tests.support.manual_clock import ManualClock

KIND = FaultKind(Reason.INVALID_PARTITION, ILLEGAL_ARGUMENT)
OTHER = FaultKind(Reason.ENCODE, ILLEGAL_ARGUMENT)


class End:
    is_transaction = False

    def __init__(self, writes=True):
        self.writes = writes
        self.meter = TaskMeter(ManualClock())
        self.appended = []

    def append(self, topics, columns, partitions):
        self.appended.append((topics, columns, partitions))

    def keep_refused(self):
        return RefusalReceipt(), RefusalReceipt()

    def partition_count(self, topic):
        return 1


def pipeline(end, **given):
    options = SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "topic": "t", **given})
    letters = None
    if options.dead_letters is not None:
        from spark_kafka_sink.exactly_once.receipts import TaskName
        from spark_kafka_sink.spark.dead_letters.writer import DeadLetterWriter

        letters = DeadLetterWriter(end, options.dead_letters, ManualClock(), TaskName("q", 0, 0))
    return Pipeline(options, end, ManualClock(), letters)


def stages(made):
    return [getattr(each, "__name__", type(each).__name__) for each in made._stages]


@pytest.mark.parametrize(
    ("given", "writes", "expected"),
    [
        ({}, True, ["RawEncoder"]),
        ({"maxrowspersecondpertask": "9"}, True, ["RawEncoder", "PaceRows"]),
        ({"topiccreation": "never"}, True, ["RawEncoder", "RequireTopics"]),
        (
            {"deadlettertopic": "d", "maxrowspersecondpertask": "9", "topiccreation": "never"}, True,
            ["RawEncoder", "PaceRows", "take_refused", "RequireTopics", "RowValidator", "DeadLetterWriter"],
        ),
        ({"deadlettertopic": "d", "maxrowspersecondpertask": "9"}, False,
         ["RawEncoder", "take_refused", "DeadLetterWriter"]),
    ],
)  # fmt: skip
def test_a_stage_that_no_option_asks_for_is_not_there_and_a_slow_task_validates_rows_when_they_are_due(
    given, writes, expected
):
    assert stages(pipeline(End(writes), **given)) == expected


def test_rejected_rows_that_no_stage_takes_are_an_error_and_not_lost():
    end = End()
    made = pipeline(end)
    made._stages = (lambda rows: iter([rows.rejecting(RejectedRows(KIND, np.array([1]), ["bad"]))]),)
    with pytest.raises(IllegalStateError, match="invalid-partition"):
        made.write(iter([pa.record_batch({"value": ["a", "b"]})]), RowLayout(value=0))
    assert end.appended == []


def rows(count=6):
    names = TopicColumn(("x", "y"), np.array([0, 1] * (count // 2), np.int32))
    return Rows(100, names, RecordColumns(value=pa.array([b"v%d" % n for n in range(count)], pa.binary())))


def found(*places, kind=KIND):
    return RejectedRows(kind, np.array(places), [f"row {place}" for place in places])


def test_a_row_is_rejected_once_for_the_first_reason():
    made = rows().rejecting(found(1, 3)).rejecting(found(3, 5, kind=OTHER))
    assert [(each.kind, each.rows.tolist(), list(each.messages)) for each in made.rejected] == [
        (KIND, [1, 3], ["row 1", "row 3"]), (OTHER, [5], ["row 5"]),
    ]  # fmt: skip
    assert made.kept_topics.names == ["x"]
    assert made.kept_partitions.tolist() == [NOT_GIVEN, LEFT_OUT] * 3
    assert made.rejecting(found(0, 2, 4)).are_all_rejected


def test_a_reason_that_goes_first_takes_rows_from_others():
    made = rows().rejecting(found(1, 3)).rejecting_first(found(3, 5, kind=OTHER))
    assert [(each.kind, each.rows.tolist()) for each in made.rejected] == [(KIND, [1]), (OTHER, [3, 5])]


def test_a_part_has_its_rows_numbers_and_rejections():
    part = rows().rejecting(found(1, 3))[2:5]
    assert (part.first_row, len(part), part.kept.tolist()) == (102, 3, [True, False, True])
    assert [each.rows.tolist() for each in part.rejected] == [[1]]
    assert rows().rejecting(found(1))[2:5].rejected == ()


def test_an_append_has_its_size_once_structs_are_encoded():
    size = AppendSize(SinkOptions.parse({"kafka.bootstrap.servers": "a:1"}).producer)
    batch = pa.record_batch({"value": pa.array([list(range(100))] * 10)})
    assert size.of(batch) == batch.nbytes
    size.appended(rows())
    size.end_batch(batch)
    assert size.of(batch) == pytest.approx(rows().columns.value.nbytes)


class TopicOf:
    """An end whose topics have so many partitions."""

    def __init__(self, partitions):
        self.partition_count = lambda _: partitions


@pytest.mark.parametrize(
    ("partitions", "topics", "options", "expected"),
    [
        (4, 1, {}, 2 << 20),
        (16, 1, {}, 4 << 20),
        (4, 20, {"kafka.batch.size": "16384"}, 5 << 20),
        (1000, 1, {}, 16 << 20),
        (4, 1, {"kafka.buffer.memory": "1048576"}, 1 << 19),
    ],
    ids=["at least 2 MiB", "a batch per partition", "256 KiB per topic", "half of the memory", "of a small one, too"],
)
def test_an_append_is_worth_its_cost_and_never_more_than_half_of_the_memory(partitions, topics, options, expected):
    size = AppendSize(SinkOptions.parse({"kafka.bootstrap.servers": "a:1", **options}).producer)
    for number in range(topics):
        size.add([f"t{number}"], TopicOf(partitions))
    assert size.bytes == expected
