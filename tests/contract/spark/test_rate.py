"""maxBytesPerSecondPerTask and maxRowsPerSecondPerTask: under a manual clock, and three seconds of a real one."""

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import ConfigError, InvalidRecordError
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.task_output import TaskMeter
from spark_kafka_sink.spark import rate_limiter
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline
from spark_kafka_sink.spark.rate_limiter import CATCH_UP_MS, PART_MS
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import write_rows
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import TOPIC, Query, committed
from tests.support.manual_clock import ManualClock
from tests.support.waiting import lasts

LAYOUT = RowLayout(value=0)
broker = broker_with()


def options(servers="a:1", **more):
    return SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": "t", **more})


class Sink:
    """Notes when how many rows were appended; each append takes ``takes_ms``."""

    writes = True

    def __init__(self, clock, takes_ms=0.0):
        self.clock = clock
        self.takes_ms = takes_ms
        self.meter = TaskMeter(clock)
        self.receipt = SendReceipt()
        self.appended = []

    def append(self, topic, columns, partitions):
        self.appended.append((self.clock.now(), len(columns), sum(map(len, columns.value.to_pylist()))))
        self.clock.advance(self.takes_ms)

    def core(self):
        return self

    def partition_count(self, topic):
        return 1


def run(monkeypatch, batches, takes_ms=0.0, **limits):
    clock = ManualClock()
    monkeypatch.setattr(rate_limiter, "sleep", clock.advance)
    sink = Sink(clock, takes_ms)
    Pipeline(options(**limits), sink, clock).write(batches(clock), LAYOUT)
    return sink, clock


def steadily(rows, size, count):
    def batches(_clock):
        for _ in range(count):
            yield pa.record_batch({"value": [b"x" * size] * rows})

    return batches


def test_without_a_limit_rows_are_appended_as_they_come(monkeypatch):
    sink, clock = run(monkeypatch, steadily(25_000, 100, 4))
    assert (len(sink.appended), clock.now()) == (4, 0)


@pytest.mark.parametrize("takes_ms", [0, 30])
def test_bytes_keep_to_the_rate_within_five_percent_over_thirty_seconds(monkeypatch, takes_ms):
    sink, _ = run(monkeypatch, steadily(5_000, 1_000, 8), takes_ms, maxbytespersecondpertask="1000000")
    within = [size for at, _, size in sink.appended if at < 30_000]
    assert 0.95 * 30_000_000 <= sum(within) <= 1.05 * 30_000_000
    assert max(within) <= 1_000_000 * PART_MS / 1000


def test_less_than_a_row_in_each_part_is_a_row_and_a_longer_wait(monkeypatch):
    sink, _ = run(monkeypatch, steadily(6, 10, 1), maxrowspersecondpertask="2")
    assert [(at, rows) for at, rows, _ in sink.appended] == [(500.0 * n, 1) for n in range(6)]


def test_the_narrower_of_two_limits_counts(monkeypatch):
    limits = {"maxrowspersecondpertask": "10", "maxbytespersecondpertask": "1000000"}
    _, clock = run(monkeypatch, steadily(50, 10, 1), **limits)
    assert clock.now() == pytest.approx(4_900)
    limits = {"maxrowspersecondpertask": "1000000", "maxbytespersecondpertask": "1000"}
    _, clock = run(monkeypatch, steadily(50, 100, 1), **limits)
    assert clock.now() == pytest.approx(5_200, rel=0.05)


def test_rows_that_come_late_are_no_reason_to_hurry_for_long(monkeypatch):
    def batches(clock):
        yield pa.record_batch({"value": [b"x"] * 100})
        clock.advance(60_000)
        yield pa.record_batch({"value": [b"x"] * 3_000})

    sink, _ = run(monkeypatch, batches, maxrowspersecondpertask="1000")
    late = [(at, rows) for at, rows, _ in sink.appended if at >= 60_000]
    at_once = sum(rows for at, rows in late if at == late[0][0])
    assert at_once <= 1000 * (CATCH_UP_MS + PART_MS) / 1000


def test_waiting_is_not_told_as_time_of_encoding(monkeypatch):
    sink, clock = run(monkeypatch, steadily(100, 10, 1), 2.0, maxrowspersecondpertask="100")
    sink.meter.lease(ProducerMetrics())
    figures = sink.meter.figures(SendReceipt())
    assert clock.now() > 900
    assert figures.encode_ms == pytest.approx(2.0 * len(sink.appended))


def test_the_row_of_an_error_is_its_number_in_the_task(monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr(rate_limiter, "sleep", clock.advance)
    sink = Sink(clock)

    def refuse_the_third_part(topic, columns, partitions):
        sink.appended.append(columns)
        if len(sink.appended) == 3:
            raise InvalidRecordError("too large", 4)

    sink.append = refuse_the_third_part
    batches = iter([pa.record_batch({"value": [b"x"] * 100})])
    with pytest.raises(InvalidRecordError, match=r"too large \(row 24 of the task, counted from 0\)"):
        Pipeline(options(maxrowspersecondpertask="100"), sink, clock).write(batches, LAYOUT)


@pytest.mark.parametrize("name", ["maxBytesPerSecondPerTask", "maxRowsPerSecondPerTask"])
def test_a_rate_of_nothing_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} must be a whole number of at least 1, but is '0'"):
        options(**{name: "0"})


def test_a_slow_task_is_acknowledged_long_after_delivery_timeout_ms(broker):
    broker.create_topic("t", partitions=2)
    asked = options(
        broker.bootstrap_servers,
        maxrowspersecondpertask="1000",
        **{"kafka.delivery.timeout.ms": "2000", "kafka.request.timeout.ms": "1900", "kafka.linger.ms": "5"},
    )
    with lasts(2.85):
        message = write_rows(iter([pa.record_batch({"value": [b"v"] * 3_000})]), LAYOUT, asked)
    assert sum(each.count for each in message.writes) == len(broker.topic("t").values()) == 3_000


BY_ROW = RowLayout(topic=0, value=1, partition=2)


@pytest.mark.parametrize("rate", [None, "20"])
def test_dead_letters_are_the_same_with_a_rate(broker, rate):
    """A row in each part: also parts of which no row is left, and whose topic only other rows have."""
    reasons = "null-topic,invalid-partition,unknown-topic,record-too-large"
    rows = pa.record_batch(
        {
            "topic": ["t", None, "u", "gone", "t", "t", "u"],
            "value": [b"0", b"1", b"2", b"3", b"x" * 5_000, b"5", b"6"],
            "partition": pa.array([0, None, 0, None, 0, -1, 9], pa.int32()),
        }
    )
    for name in ("t", "u", "letters"):
        broker.create_topic(name)
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.max.request.size": "2000",
        "kafka.max.block.ms": "3000",
        "topicCreation": "never",
        "deadLetterTopic": "letters",
        "deadLetterOn": reasons,
    }
    asked = SinkOptions.parse(given if rate is None else {**given, "maxRowsPerSecondPerTask": rate})
    message = write_rows(iter([rows]), BY_ROW, asked)
    assert [(each.topic, each.count) for each in message.writes] == [("t", 1), ("u", 1)]
    assert dict(message.figures.dead_letters) == {
        "null-topic": 1, "invalid-partition": 2, "unknown-topic": 1, "record-too-large": 1,
    }  # fmt: skip
    assert len(broker.topic("letters").values()) == 5


def test_an_exactly_once_task_keeps_to_its_rate_and_its_replay_does_not_wait(broker, monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr(rate_limiter, "sleep", clock.advance)
    broker.create_topic(TOPIC)
    query = Query(broker.bootstrap_servers)
    asked = options(broker.bootstrap_servers, topic=TOPIC, maxrowspersecondpertask="1000")

    def run_task(rows):
        began = clock.now()
        with query.open_task(query.plan(), 0, 0) as task:
            batches = iter([pa.record_batch({"value": [b"v"] * rows})])
            Pipeline(asked, task, clock).write(batches, LAYOUT)
            return task.prepare(), clock.now() - began

    report, took_ms = run_task(1_000)
    assert took_ms == 900
    query.commit([report])
    assert committed(broker) == {b"v": 1_000}
    replayed, took_ms = run_task(1_000)
    assert took_ms == 0
    assert replayed.outcome.rows == report.outcome.rows
