"""What a forked child may do with the producers of its parent: nothing but close them."""

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import ProducerClosedError
from spark_kafka_sink.kafka08.sync_producer import SyncProducer
from spark_kafka_sink.producer.receipt import SendReceipt
from tests.support.child_processes import failure_in_fork
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")

TOPIC = "t"


@pytest.fixture
def producer(broker):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}) as producer:
        producer.send(ProducerRecord(TOPIC, b"before")).result(DEADLINE_S)
        yield producer


@pytest.fixture
def sync_producer(broker):
    with SyncProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.send(ProducerRecord(TOPIC, b"before"))
        yield producer


def raises(call):
    with pytest.raises(ProducerClosedError, match=r"belongs to the parent process.* Open a new producer"):
        call()


def values(broker):
    return [record.value for record in broker.topic(TOPIC).records()]


RECORD = ProducerRecord(TOPIC, b"of the child")
USES: dict[str, Callable[[KafkaProducer], object]] = {
    "send to a known topic": lambda producer: producer.send(RECORD),
    "send to a new topic": lambda producer: producer.send(ProducerRecord("new", b"v")),
    "send_columns": lambda producer: producer.send_columns(TOPIC, value=pa.array([b"v"])),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for(TOPIC),
    "metrics": lambda producer: producer.metrics(),
    "open_metrics": lambda producer: producer.open_metrics(),
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction({(TOPIC, 0): 1}, "g"),
}


@pytest.mark.parametrize("use", USES)
def test_incident_send_in_a_child_was_accepted_and_its_future_never_completed(broker, producer, use):
    assert failure_in_fork(lambda: raises(lambda: USES[use](producer))) == ""
    producer.send(ProducerRecord(TOPIC, b"after")).result(DEADLINE_S)
    assert values(broker) == [b"before", b"after"]


def test_incident_a_sync_producer_of_both_processes_swapped_acknowledgements(broker, sync_producer):
    def check():
        raises(lambda: sync_producer.send(RECORD))
        raises(sync_producer.metrics)
        sync_producer.close()

    assert failure_in_fork(check) == ""
    assert sync_producer.send(ProducerRecord(TOPIC, b"after"))[0].offset == 1
    assert values(broker) == [b"before", b"after"]


def test_a_future_and_a_receipt_of_the_parent_raise_in_the_child_if_they_would_wait_for_ever(
    broker,
):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000}) as producer:
        done = producer.send(ProducerRecord(TOPIC, b"done"))
        producer.flush()
        future = producer.send(ProducerRecord(TOPIC, b"waits"))
        receipt = producer.send_columns(TOPIC, value=pa.array([b"waits, too"]))

        def check():
            assert done.result().offset == 0
            assert not future.done()
            raises(future.result)
            raises(future.exception)
            raises(lambda: future.add_done_callback(print))
            raises(lambda: receipt.wait(float("inf")))
            raises(lambda: KafkaProducer.flush(producer))

        assert failure_in_fork(check) == ""
        producer.flush()
        assert future.result(0).offset == 1
        receipt.wait(0)


def test_closing_and_collecting_in_the_child_leave_the_parents_connections(broker, sync_producer):
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap_servers})
    producer.send(ProducerRecord(TOPIC, b"1")).result(DEADLINE_S)
    kept = [producer]

    def check():
        assert not producer._core.is_alive()
        with producer:
            pass
        try:
            with producer:
                raise ArithmeticError
        except ArithmeticError:
            pass
        kept.clear()
        gc.collect()

    connections = broker.metrics()
    assert failure_in_fork(check) == ""
    producer.send(ProducerRecord(TOPIC, b"2")).result(DEADLINE_S)
    assert producer.metrics()["producer-metrics"]["connection-close-total"] == 0, connections
    producer.close()


def test_a_new_producer_in_the_child_works_and_so_do_those_of_its_children(broker, producer):
    def grandchild(of_child):
        raises(lambda: producer.send(RECORD))
        raises(lambda: of_child.send(RECORD))
        with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as own:
            own.send(ProducerRecord(TOPIC, b"grandchild")).result(DEADLINE_S)

    def child():
        with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as own:
            own.send(ProducerRecord(TOPIC, b"child")).result(DEADLINE_S)
            receipt = SendReceipt()
            assert (said := failure_in_fork(lambda: grandchild(own))) == "", said
            own.send(ProducerRecord(TOPIC, b"child again")).result(DEADLINE_S)
            receipt.wait(0)

    assert failure_in_fork(child) == ""
    producer.send(ProducerRecord(TOPIC, b"after")).result(DEADLINE_S)
    assert values(broker) == [b"before", b"child", b"grandchild", b"child again", b"after"]


def test_locks_that_other_threads_hold_at_the_fork_do_not_block_the_child(broker, producer, sync_producer):
    future = producer.send(ProducerRecord(TOPIC, b"more"))
    producer.flush()
    locks: list[Any] = [producer._core.sender_thread.callbacks._late, sync_producer._lock, sync_producer._metrics._lock]
    held, leave = threading.Event(), threading.Event()

    def hold():
        for lock in locks:
            lock.acquire()
        held.set()
        leave.wait(DEADLINE_S)
        for lock in locks:
            lock.release()

    def check():
        for use in USES.values():
            raises(lambda use=use: use(producer))  # type: ignore[misc]
        raises(lambda: sync_producer.send(RECORD))
        assert future.done()
        producer.close()
        sync_producer.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(DEADLINE_S)
    said = failure_in_fork(check)
    leave.set()
    thread.join()
    assert said == ""


def test_a_callback_that_forks_does_not_run_the_loop_twice(broker, producer):
    children = []

    def fork(*_):
        pid = os.fork()
        if pid:
            children.append(pid)

    producer.send(ProducerRecord(TOPIC, b"forks"), fork)
    producer.flush()
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0, "the child's copy of the thread went on"
    producer.send(ProducerRecord(TOPIC, b"after")).result(DEADLINE_S)
    assert values(broker) == [b"before", b"forks", b"after"]
