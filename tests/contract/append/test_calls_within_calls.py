"""Code that runs in the middle of a call on its thread (signal handlers, partitioners) calls the producer again."""

import signal
from typing import Any, ClassVar

import numpy as np
import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import IllegalStateError
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S

CALLS = 100
broker = broker_with("t", partitions=2)


@pytest.mark.parametrize("fields", [{}, {"key": b"k"}, {"headers": [("h", b"x")]}], ids=["value", "key", "headers"])
def test_incident_a_signal_handler_that_sends_while_send_runs_mixed_up_futures_or_waited_for_its_own_lock(
    broker, fields
):
    sent: list[tuple[bytes, Any]] = []
    handled: list[bool] = []

    def send():
        value = b"%d" % len(sent)
        sent.append((value, producer.send(ProducerRecord("t", value, **fields))))

    def handle(*_):
        try:
            send()
            if len(handled) % 4 == 0:
                producer.flush()
            handled.append(True)
        except IllegalStateError:
            handled.append(False)
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1}) as producer:
        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        try:
            while len(handled) < CALLS:
                send()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        producer.flush()
    logs = [broker.topic("t").values(partition) for partition in (0, 1)]
    results = [(value, future.result(0)) for value, future in sent]
    assert [logs[each.partition][each.offset] for _, each in results] == [value for value, _ in results]
    assert sum(map(len, logs)) == len(sent)
    assert any(handled)


class FlushingPartitioner:
    producers: ClassVar[list[KafkaProducer]] = []

    def partition(self, topic, columns, *_):
        for producer in self.producers:
            producer.flush()
        return np.zeros(len(columns), np.int32)


def test_a_partitioner_that_flushes_its_own_producer_is_told_instead_of_waiting_for_itself(broker, monkeypatch):
    options = {"partitioner.class": f"{__name__}:FlushingPartitioner", "linger.ms": 3_600_000}
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, **options}) as producer:
        monkeypatch.setattr(FlushingPartitioner, "producers", [producer])
        failed = producer.send(ProducerRecord("t", b"v"))
        producer.flush()
        with pytest.raises(IllegalStateError, match="in the middle of its own send, flush or close"):
            failed.result(DEADLINE_S)
        FlushingPartitioner.producers.clear()
        assert producer.send(ProducerRecord("t", b"w")) is not failed


def test_a_call_in_the_middle_of_a_step_that_cannot_be_divided_is_refused(broker):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.send(ProducerRecord("t", b"v"))
        with producer._core.pending.topic("t")._lock:
            for call in (producer.flush, lambda: producer.send(ProducerRecord("t", None, b"k")), producer.close):
                with pytest.raises(IllegalStateError, match="in the middle of its own send, flush or close"):
                    call()
        assert producer.send(ProducerRecord("t", b"w")).result(DEADLINE_S)
