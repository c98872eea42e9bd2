"""Readers know the rows that the drivers have written, and give another name to a row with another value."""

from __future__ import annotations

import pytest
from confluent_kafka import IsolationLevel, Producer

from spark_kafka_sink.testing import TestBroker
from tests.soak.checker import check
from tests.soak.events import COMMITTED, Recorder, read_history
from tests.soak.findings import Kind
from tests.soak.readers import Reader, Source
from tests.soak.workloads import WORKLOADS
from tests.support.waiting import DEADLINE_S

TOPIC = "nightly"


@pytest.fixture
def read(tmp_path):
    """The rows as a reader records them that were written with these values."""

    def read(*records):
        with TestBroker() as broker:
            broker.create_topic(TOPIC)
            writer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            for key, value in records:
                writer.produce(TOPIC, value, key, partition=0)
            assert writer.flush(DEADLINE_S) == 0
            source = Source(broker.bootstrap_servers, {TOPIC: 1})
            reader = Reader(source, "fresh", COMMITTED, tmp_path)
            reader.start()
            try:
                reader.await_passed(source.ends(IsolationLevel.READ_UNCOMMITTED), DEADLINE_S)
            finally:
                reader.close()
        return [row for event in read_history(tmp_path) if event["kind"] == "seen" for _, row in event["rows"]]

    return read


def test_a_row_with_another_value_has_another_name(read):
    right, other = "nightly/1/12", [b"13", b"1", b"", None]
    written = [(right, b"12"), *((right, value) for value in other), (None, b"12"), (b"\xff/12", b"12")]
    assert read(*written) == [
        right,
        *(f"{right} with value {value!r}" for value in other),
        " with value b'12'",
        r"\xff/12",  # which is no row of any write
    ]


def test_the_checker_finds_rows_whose_values_were_swapped(read, tmp_path):
    record = Recorder(tmp_path, "test")
    record("workload", **{**WORKLOADS[TOPIC].writes[0].promised, "exactly_once": False, "rows": 3})
    record("handed", write="nightly/1", task=0, attempt="1-0", rows=["nightly/1/1", "nightly/1/2", "nightly/1/3"])
    read(("nightly/1/1", b"2"), ("nightly/1/2", b"1"), ("nightly/1/3", b"3"))
    found = check(read_history(tmp_path))
    assert [(finding.kind, finding.about) for finding in found] == [
        (Kind.FOREIGN_ROW, "nightly/1/1 with value b'2'"),
        (Kind.FOREIGN_ROW, "nightly/1/2 with value b'1'"),
    ]
