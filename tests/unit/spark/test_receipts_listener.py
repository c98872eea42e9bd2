"""The listener gives each progress to its handler, with the receipts once all of them can be read."""

from types import SimpleNamespace

import pytest

from spark_kafka_sink import ReceiptsListener
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, write_lines
from spark_kafka_sink.spark.receipts import receipts_listener
from spark_kafka_sink.testing.manual_clock import ManualClock

TO_TOPIC = {"kafka.bootstrap.servers": "boot:9092", "topic": "t"}
RECEIPTS = (
    WriteReceipt("q", 4, 0, "t", 0, 0, 9, 10, 100, 1, 2, TaskFigures(rows=15)),
    WriteReceipt("q", 4, 0, "t", 1, 0, 4, 5, 50, 1, 2),
)


def progress(rows, batch=4):
    return SimpleNamespace(progress=SimpleNamespace(id="q", batchId=batch, sink=SimpleNamespace(numOutputRows=rows)))


@pytest.fixture
def batches():
    return []


@pytest.fixture
def listener(batches, tmp_path):
    return ReceiptsListener(batches.append, {**TO_TOPIC, "receiptsPath": str(tmp_path)}, ManualClock())


def test_a_progress_comes_with_the_receipts_of_its_batch(listener, batches, tmp_path):
    write_lines(str(tmp_path), RECEIPTS)
    listener.onQueryProgress(progress(15))
    assert batches[0].progress.batchId == 4
    assert (batches[0].receipts, batches[0].rows) == (RECEIPTS, 15)
    assert batches[0].tasks == {0: TaskFigures(rows=15)}


def test_receipts_that_are_late_are_waited_for(listener, batches, tmp_path, monkeypatch):
    monkeypatch.setattr(receipts_listener, "sleep", lambda ms: write_lines(str(tmp_path), RECEIPTS))
    listener.onQueryProgress(progress(15))
    assert batches[0].receipts == RECEIPTS


def test_receipts_that_never_come_are_given_up(listener, batches, monkeypatch):
    monkeypatch.setattr(receipts_listener, "sleep", listener._clock.advance)
    listener.onQueryProgress(progress(15))
    assert batches[0].receipts == ()
    assert listener._clock.now() >= 2000


def test_dead_letters_are_rows_that_no_receipt_is_waited_for(listener, batches, tmp_path, monkeypatch):
    monkeypatch.setattr(receipts_listener, "sleep", None)
    letters = WriteReceipt("q", 4, 1, "", -1, -1, -1, 0, 0, 1, 2, TaskFigures(dead_letters=(("encode", 2), ("x", 1))))
    write_lines(str(tmp_path), (*RECEIPTS, letters))
    listener.onQueryProgress(progress(18))
    assert (batches[0].rows, len(batches[0].receipts)) == (15, 3)


def test_a_batch_without_rows_is_not_waited_for(listener, batches, monkeypatch):
    monkeypatch.setattr(receipts_listener, "sleep", None)
    listener.onQueryProgress(progress(0))
    assert batches[0].receipts == ()


def test_receipts_that_cannot_be_read_are_a_warning(listener, batches, tmp_path, caplog):
    (tmp_path / "q-4.jsonl").write_text("{}\n")
    listener.onQueryProgress(progress(15))
    assert batches[0].receipts == ()
    assert "The receipts of micro-batch 4 cannot be read" in caplog.text


def test_a_write_without_receipts_is_refused(batches):
    with pytest.raises(ConfigError, match="needs receiptsPath or receiptsTopic"):
        ReceiptsListener(batches.append, TO_TOPIC)
