"""Receipts as JSON: the task's figures in its first one, older lines as they were, foreign lines refused."""

import json

import pytest

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.exactly_once.receipts import TaskName, WriteReceipt, receipts_of
from spark_kafka_sink.producer.receipt import Delivery

FIGURES = TaskFigures(
    began_at=5, rows=3, bytes=30, compressed_bytes=20, batches=2, retries=1, requests=2, throttle_ms=0.5,
    latency_avg_ms=3.25, latency_max_ms=4.125, duration_ms=9.0, encode_ms=1.5, memory_wait_ms=0.0, ack_wait_ms=2.0,
    dead_letters=(("encode", 2),),
)  # fmt: skip
DELIVERIES = {TopicPartition("t", 1): Delivery(2, 20, 4, 5), TopicPartition("t", 0): Delivery(1, 10, 7, 7)}
BEFORE = (
    '{"query":"q","batch":1,"task":0,"topic":"t","partition":1,"first_offset":10,"last_offset":14,"count":5,'
    '"bytes":50,"began_at":1000,"ended_at":1010}'
)


def test_the_figures_of_a_task_are_in_its_first_receipt_only():
    first, second = receipts_of(TaskName("q", 1, 0), DELIVERIES, 6, 8, FIGURES)
    assert (first.partition, first.figures) == (0, FIGURES)
    assert (second.partition, second.figures) == (1, None)
    assert receipts_of(TaskName("q", 1, 0), {}, 6, 8, TaskFigures(rows=1)) == ()


def test_a_task_with_nothing_but_dead_letters_has_a_receipt_of_no_rows():
    (receipt,) = receipts_of(TaskName("q", 1, 0), {}, 6, 8, FIGURES)
    assert (receipt.topic, receipt.partition, receipt.count, receipt.figures) == ("", -1, 0, FIGURES)
    assert WriteReceipt.parse(receipt.line()) == receipt


def test_figures_survive_the_line():
    for each in receipts_of(TaskName("q", 1, 0), DELIVERIES, 6, 8, FIGURES):
        assert WriteReceipt.parse(each.line()) == each
    figures = json.loads(receipts_of(TaskName("q", 1, 0), DELIVERIES, 6, 8, FIGURES)[0].line())["figures"]
    assert (figures["latency_max_ms"], figures["dead_letters"]) == (4.125, {"encode": 2})


def test_a_line_of_a_release_before_the_figures_is_read_and_written_as_it_was():
    receipt = WriteReceipt.parse(BEFORE)
    assert receipt == WriteReceipt("q", 1, 0, "t", 1, 10, 14, 5, 50, 1000, 1010)
    assert receipt.line() == BEFORE


def test_figures_of_a_later_release_are_read():
    line = json.dumps({**json.loads(BEFORE), "figures": {"rows": 3, "new": "x"}})
    assert WriteReceipt.parse(line).figures == TaskFigures(rows=3)


@pytest.mark.parametrize(
    "line",
    [
        "", "5", "[]", "{}", "null", "not json", '{"query":"q"}', "[" * 100_000,
        BEFORE.replace('"batch":1', '"batch":"1"'),
        BEFORE.replace('"query":"q"', '"query":null'),
        BEFORE[:-1] + ',"figures":5}',
        BEFORE[:-1] + ',"figures":{"rows":"many"}}',
        BEFORE[:-1] + ',"figures":{"dead_letters":[1]}}',
    ],
)  # fmt: skip
def test_what_is_no_receipt_is_one_kind_of_error(line):
    with pytest.raises(ValueError, match="is not a receipt") as raised:
        WriteReceipt.parse(line)
    assert len(str(raised.value)) < 250
