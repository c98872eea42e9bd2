"""The sender's loop under a manual clock: what it sends when, and what becomes of it."""

from __future__ import annotations

from collections import defaultdict, deque
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import Node, TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaTimeoutError, OutOfOrderSequenceError
from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.producer.receipt import RefusalReceipt, SendReceipt
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.support.scripted_network import SentRequest
from tests.unit.scripted_engine import PARTITIONS, RETRIED_BY_JAVA, TOPIC, Engine, ScriptedCluster, Step


def filling(count: int) -> list[bytes]:
    """Values of which 16 fill a batch of 16 KiB: ``count`` batches of them, numbered."""
    return [b"%06d" % number + b"x" * 1000 for number in range(16 * count)]


def test_order_holds_when_the_first_of_five_in_flight_is_refused():
    engine = Engine().connect()
    engine.send([b"first"])
    engine.steps.append(Step(before={0: ErrorCode.not_enough_replicas}, hold=True))
    engine.steps.extend([Step(hold=True)] * 4)
    engine.send(filling(5))
    assert len(engine.requests) == 1 + 5, "all five are in flight when the first is answered"
    engine.release_held()
    engine.settle()
    assert engine.values() == [b"first", *filling(5)]
    assert set(engine.logs[0].identities) == {(1001, 0)}, "a retry needs no new epoch"
    engine.receipt.wait(0)


def test_incident_a_request_of_acks_0_whose_write_failed_counted_as_delivered():
    engine = Engine(acks="0").connect()
    write = engine.transport.send

    def fail_once(connection_id, buffers):
        engine.transport.send = write
        engine.transport.drop(connection_id, "Broken pipe")
        return write(connection_id, buffers)

    engine.transport.send = fail_once
    engine.deliver([b"a"])
    engine.receipt.wait(0)
    assert engine.values() == [b"a"]


def test_a_batch_expires_in_flight_and_the_next_ones_go_out_under_a_new_epoch():
    engine = Engine(delivery_timeout_ms=31_000, request_timeout_ms=30_000).connect()
    engine.steps.append(Step(swallow=True))
    engine.append([b"lost"])
    engine.spin(1000)
    later = SendReceipt()
    engine.steps.append(Step(swallow=True))
    engine.spin(30_000)
    engine.deliver([b"next"], receipt=later)
    with pytest.raises(KafkaTimeoutError, match="Expiring 1 record"):
        engine.receipt.wait(0)
    later.wait(0)
    assert engine.values() == [b"next"]
    assert engine.logs[0].identities == [(1001, 1)]


def test_when_the_epochs_run_out_a_new_producer_id_is_asked_for():
    engine = Engine().connect()
    engine.send([b"a"])
    sequences = engine.parts.sender.sequences
    sequences.identity = sequences.identity._replace(epoch=32766)
    sequences.partition(TopicPartition("t", 0)).identity = sequences.identity
    engine.logs[0].forget_producers()
    engine.deliver([b"b"])
    assert engine.values() == [b"a", b"b"]
    assert engine.logs[0].identities[-1] == (1002, 0)


def test_a_refused_producer_id_fails_everything_with_the_reason():
    engine = Engine().connect()
    engine.init_producer_id.append(ErrorCode.cluster_authorization_failed)
    engine.deliver([b"a"])
    with pytest.raises(BrokerError, match="InitProducerId: CLUSTER_AUTHORIZATION_FAILED.*enable.idempotence=false"):
        engine.receipt.wait(0)
    with pytest.raises(BrokerError):
        engine.append([b"b"])
    assert engine.memory_is_free()


@pytest.mark.parametrize("code", [ErrorCode.coordinator_load_in_progress, *RETRIED_BY_JAVA])
def test_incident_a_producer_id_refused_for_a_while_ended_the_producer(code):
    engine = Engine().connect()
    engine.init_producer_id.extend([code] * 3)
    engine.deliver([b"a"])
    assert engine.values() == [b"a"]


def test_records_that_get_no_producer_id_expire_with_the_code_and_the_producer_goes_on():
    engine = Engine(delivery_timeout_ms=31_000).connect()
    engine.init_producer_id.extend([ErrorCode.not_controller] * 1_000)
    engine.deliver([b"a"])
    with pytest.raises(KafkaTimeoutError, match=r"since batch creation\. InitProducerId: NOT_CONTROLLER"):
        engine.receipt.wait(0)
    assert engine.clock.now() >= 31_000
    engine.init_producer_id.clear()
    engine.deliver([b"b"], receipt=SendReceipt())
    assert engine.values() == [b"b"]


def test_a_hint_at_the_new_leader_is_followed_at_once():
    engine = Engine(nodes=2).connect()
    engine.send([b"warm"])
    engine.steps.append(Step(before={0: ErrorCode.not_leader_or_follower}, new_leader=1))
    engine.send([b"a"])
    assert engine.values() == [b"warm", b"a"], "neither metadata nor a backoff was waited for"
    assert "n1" in {host for host, _ in engine.transport.addresses.values()}


@pytest.mark.parametrize("hint", [0, 1])
def test_a_hint_that_changes_no_leader_is_not_retried_at_network_speed(hint):
    """A broker that names itself, or one that an older epoch has led: the leader stays, and the backoff is kept."""
    engine = Engine(nodes=2).connect()
    engine.send([b"warm"])
    node = Node(0, "n0", 9092)
    engine.parts.metadata.update_leader(TopicPartition(TOPIC, 0), node, 7 * hint)
    engine.steps.extend([Step(before={0: ErrorCode.not_leader_or_follower}, new_leader=hint)] * 100)
    engine.send([b"a"])
    assert len(engine.requests) == 2, "the retry waits for retry.backoff.ms"
    engine.steps.clear()
    engine.spin(1000)
    assert engine.values() == [b"warm", b"a"]


def test_a_topic_whose_batches_wait_longer_than_metadata_max_idle_is_not_forgotten():
    """min.insync.replicas falls short for eleven minutes; the rows are still in time."""
    engine = Engine(delivery_timeout_ms=1_200_000, metadata_max_age_ms=60_000).connect()
    engine.steps.extend([Step(before={0: ErrorCode.not_enough_replicas})] * 10_000)
    engine.append([b"a"])
    for _ in range(11 * 60):
        engine.spin(1000)
    assert TOPIC in engine.parts.metadata.snapshot.topics
    engine.steps.clear()
    engine.settle(5_000)
    assert engine.values() == [b"a"]
    engine.receipt.wait(0)


def test_incident_a_batch_that_was_refused_again_and_again_fell_out_of_the_brokers_memory():
    """Its first response was lost, and later ones refused it but took the new batches behind it. The broker knows
    the last five batches of a producer: it no longer knew this one, whose records failed although they were in the log.
    """
    cluster = ScriptedCluster(batch_size=100).connect()
    cluster.send([b"%04d" % row for row in range(3)])
    cluster.lose_next = True
    cluster.append([b"%04d" % row for row in range(3, 6)])
    cluster.refusals[0].extend([ErrorCode.none, *[ErrorCode.not_leader_or_follower, *[ErrorCode.none] * 4] * 3])
    cluster.deliver([b"%04d" % row for row in range(6, 60)])
    cluster.receipt.wait(0)
    assert cluster.rows(0) == list(range(60))


# A broker takes any first sequence of a producer it does not know: what keeps a partition's first rows in order.

ROWS = [b"%04d" % row for row in range(20)]


def test_a_new_topics_leader_that_refuses_the_first_batch_is_not_offered_the_second():
    """It took the second; the first got a new epoch and landed behind it, and all of it was reported as delivered."""
    made = ScriptedCluster(batch_size=100).connect()
    made.refusals[0].append(ErrorCode.not_leader_or_follower)
    made.deliver(ROWS)
    assert made.rows(0) == list(range(20))
    made.receipt.wait(0)


def test_sequences_go_on_with_0_after_the_largest():
    """A broker takes any first sequence, and then only the next one."""
    made = ScriptedCluster(batch_size=100).connect()
    made.send(ROWS[:1])
    made.create_topic(PARTITIONS)
    sequence = made.parts.sender.sequences.partition(TopicPartition(TOPIC, 0))
    sequence.next = sequence.acked_until = 2**31 - 5
    made.deliver(ROWS[1:])
    assert made.rows(0) == list(range(1, 20))
    made.receipt.wait(0)
    assert sequence.next == 14


def test_a_batch_that_was_overtaken_all_the_same_fails_instead_of_landing_behind():
    """The broker forgot the producer between two batches, refused the first and took the second."""
    made = ScriptedCluster(batch_size=100).connect()
    made.send(ROWS[:1])
    made.logs[0].forget_producers(refuses_unknown=False)
    made.refusals[0].append(ErrorCode.not_enough_replicas)
    made.deliver(ROWS[1:8])
    with pytest.raises(OutOfOrderSequenceError):
        made.receipt.wait(0)
    assert made.rows(0) == [0, *range(5, 8)]
    assert made.memory_is_free()


def append_unkeyed(engine: Engine, values: list[bytes]) -> None:
    columns = RecordColumns(value=pa.array(values, pa.binary()))
    engine.parts.appender.append(TopicColumn.of(TOPIC), columns, None, engine.receipt)


@pytest.mark.parametrize("timeout_ms", [0, 500])
def test_rows_without_a_key_avoid_a_node_that_takes_nothing_for_partitioner_availability_timeout_ms(timeout_ms):
    engine = Engine(
        partitions=2,
        nodes=2,
        max_in_flight_requests_per_connection=1,
        batch_size=1,
        partitioner_adaptive_partitioning_enable=False,
        partitioner_availability_timeout_ms=timeout_ms,
    ).connect()
    for node in (0, 1):
        engine.send([b"first"], partition=node)
    engine.steps.append(Step(hold=True))
    for _ in range(2):  # node 0 does not respond to the first, and the second waits for it
        engine.send([b"held"], partition=0)
    engine.spin(501)
    append_unkeyed(engine, [b"free"] * 40)
    engine.spin()
    assert (engine.values(1).count(b"free") == 40) is (timeout_ms > 0)
    engine.release_held()
    engine.spin()
    append_unkeyed(engine, [b"again"] * 40)
    engine.spin()
    assert engine.values(0).count(b"again") > 0


# What the sender counts, seen through ``KafkaProducer.metrics``'s source.


def metrics(engine: Engine) -> dict[str, dict[str, float]]:
    return engine.parts.accumulator.metrics.read(engine.clock.now())


def test_a_request_and_its_batches_are_counted_by_topic_and_node():
    engine = Engine(partitions=2).connect()
    engine.append([b"a", b"b"], partition=0)
    engine.send([b"c"], partition=1)
    found = metrics(engine)
    assert found["producer-topic-metrics.t"]["record-send-total"] == 3
    assert found["producer-metrics"]["records-per-request-avg"] == 3
    assert found["producer-metrics"]["compression-rate-avg"] == 1
    assert found["producer-metrics"]["requests-in-flight"] == 0
    assert found["producer-node-metrics.node-0"]["request-latency-avg"] == 0
    assert found["producer-metrics"]["buffer-available-bytes"] == engine.config.buffer_memory


def test_the_size_of_a_batch_is_what_the_broker_gets_and_compression_is_seen():
    engine = Engine(compression_type="zstd").connect()
    engine.send([b"x" * 10_000])
    found = metrics(engine)["producer-metrics"]
    assert found["batch-size-max"] < 500
    assert found["compression-rate-avg"] == pytest.approx(found["batch-size-avg"] / 10_000, rel=0.05)


def test_a_request_without_an_answer_yet_is_in_flight_and_one_that_is_cut_off_is_not():
    engine = Engine().connect()
    engine.steps.extend([Step(lose_response=True), Step(hold=True)])
    engine.send([b"a"])
    assert metrics(engine)["producer-metrics"]["requests-in-flight"] == 0
    while not engine.held:
        engine.spin(100)
    assert metrics(engine)["producer-metrics"]["requests-in-flight"] == 1
    engine.clock.advance(40)
    engine.release_held()
    engine.spin()
    found = metrics(engine)["producer-metrics"]
    assert found["requests-in-flight"] == 0
    assert found["request-latency-max"] == 40


def test_records_that_are_sent_again_count_as_retries_and_as_sent_each_time_and_those_that_fail_as_errors():
    engine = Engine().connect()
    engine.steps.append(Step(before={0: ErrorCode.not_leader_or_follower}))
    engine.deliver([b"a", b"b"])
    found = metrics(engine)["producer-topic-metrics.t"]
    assert (found["record-retry-total"], found["record-send-total"], found["record-error-total"]) == (2, 4, 0)
    engine.steps.append(Step(before={0: ErrorCode.topic_authorization_failed}))
    engine.deliver([b"a", b"b", b"c"])
    assert metrics(engine)["producer-topic-metrics.t"]["record-error-total"] == 3


def test_the_halves_of_a_split_batch_keep_the_size_of_the_largest_record():
    engine = Engine().connect()
    engine.steps.append(Step(before={0: ErrorCode.message_too_large}))
    engine.deliver([b"x" * 100, b"x" * 1_000])
    found = metrics(engine)["producer-metrics"]
    assert found["batch-split-total"] == 1
    assert 1_000 < found["record-size-max"] < 1_030


# A topic takes only smaller batches than batch.size: what a refusal costs, and what is learned from it.

BATCH = 262_144
LIMIT = 20_000


def limited(partitions: int = 1, **config: object) -> Engine:
    made = Engine(partitions, **{"batch_size": BATCH, **config}).connect()
    made.max_message_bytes = LIMIT
    return made


def rows(first: int, count: int) -> list[bytes]:
    return [b"%08d" % number + b"x" * 92 for number in range(first, first + count)]


def test_halving_teaches_the_limit_of_all_partitions():
    partitions = 4
    made = limited(partitions)
    for partition in range(partitions):
        made.append(rows(0, 6_000), partition)  # two full batches and an open one
    made.settle()
    made.receipt.wait(0)
    assert all(made.values(partition) == rows(0, 6_000) for partition in range(partitions))
    assert made.refused <= 4 * partitions, "of 262144, 131072, 65536 and 32768 bytes"
    assert made.memory_is_free()
    assert set(made.logs[0].identities) == {(1001, 0)}, "the parts of a batch share its sequences"
    refused = made.refused
    made.deliver(rows(6_000, 3_000))
    assert made.refused == refused, "new batches are built below the limit"
    assert made.values() == rows(0, 9_000)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_the_limit_holds_for_the_compressed_batch(codec):
    made = limited(compression_type=codec)
    random = Random(1)
    values = [random.randbytes(50) + b"x" * 50 for _ in range(30_000)]
    made.deliver(values)
    made.receipt.wait(0)
    assert made.values() == values
    assert made.refused <= 4
    assert len(made.requests) < 250, "batches are filled up to the limit after compression"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_receipt_that_keeps_refused_records_has_their_bytes_and_no_error(codec):
    made = limited(compression_type=codec)
    large = Random(1).randbytes(30_000)
    receipt = RefusalReceipt({ErrorCode.message_too_large})
    made.deliver([*rows(0, 100), large, *rows(100, 100), large], receipt=receipt)
    receipt.wait(0)
    assert made.values() == rows(0, 200)
    assert receipt.deliveries[TopicPartition("t", 0)].count == 200
    for _ in range(2):
        record = receipt.take_refused()
        assert record.partition == TopicPartition("t", 0)
        assert record.error.name == "MESSAGE_TOO_LARGE"
        assert [each.value for each in decode_batches(record.batch)[0].records] == [large]
    assert receipt.take_refused() is None
    assert made.memory_is_free()


def test_a_receipt_that_keeps_refused_records_fails_with_every_other_error():
    made = limited()
    receipt = RefusalReceipt({ErrorCode.message_too_large})
    made.send(rows(0, 1), receipt=receipt)
    made.steps.append(Step(before={0: ErrorCode.invalid_record}))
    made.deliver(rows(1, 1), receipt=receipt)
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        receipt.wait(0)
    assert receipt.take_refused() is None


def test_incident_a_raised_limit_was_never_noticed():
    made = limited(metadata_max_age_ms=300_000)
    made.deliver(rows(0, 3_000))
    taught = made.parts.accumulator.batch_limit("t")
    assert taught <= LIMIT
    made.max_message_bytes = BATCH
    made.deliver(rows(3_000, 1))
    assert made.parts.accumulator.batch_limit("t") == taught, "not before its time"
    made.clock.advance(300_000)
    made.deliver(rows(3_001, 1))
    assert made.parts.accumulator.batch_limit("t") == BATCH
    made.deliver(rows(3_002, 3_000))
    assert made.values() == rows(0, 6_002)


# A backlog keeps every connection full; metadata that is due is asked for all the same. Each response takes 30 ms, and
# a connection answers in order, so a slot comes free every few milliseconds.

ANSWER_MS = 30
TICK_MS = 5


class SlowEngine(Engine):
    def __init__(self, nodes: int, in_flight: int) -> None:
        self.under_way: defaultdict[int, deque[tuple[float, SentRequest, Any]]] = defaultdict(deque)
        self.asked: list[tuple[str, ...]] = []
        super().__init__(
            partitions=4,
            nodes=nodes,
            max_in_flight_requests_per_connection=in_flight,
            metadata_max_age_ms=500,
            batch_size=1000,
        )

    def _respond(self, request: SentRequest) -> Any:
        response = super()._respond(request)
        if request.api == "api_versions":
            return response
        if request.api == "metadata":
            self.asked.append(tuple(topic.name for topic in request.entity().topics))
        self.under_way[request.connection_id].append((self.clock.now() + ANSWER_MS, request, response))
        return None

    def tick(self) -> None:
        self.clock.advance(TICK_MS)
        for queue in self.under_way.values():
            while queue and queue[0][0] <= self.clock.now():
                self.transport.respond(*queue.popleft()[1:])
        self.turn()
        self.turn()

    def await_topic(self, topic: str, timeout_ms: float) -> None:
        """As a caller that waits while the sender goes on."""
        self.wait_for_topic(topic, timeout_ms, self.tick)

    def load(self) -> None:
        for partition in self.leaders:
            self.append([bytes(900)] * 50, partition)


@pytest.fixture(params=[(1, 1), (1, 5), (2, 5)], ids=lambda each: f"{each[0]} nodes, {each[1]} in flight")
def saturated(request):
    engine = SlowEngine(*request.param)
    engine.await_topic(TOPIC, 10_000)
    for _ in range(100):
        if not engine.parts.accumulator.queue_lengths(TOPIC, [0])[0] > 20:
            engine.load()
        engine.tick()
    return engine


def test_metadata_is_asked_for_at_its_age_under_a_backlog(saturated):
    saturated.asked.clear()
    for _ in range(4_000 // TICK_MS):
        if saturated.parts.accumulator.queue_lengths(TOPIC, [0])[0] < 20:
            saturated.load()
        saturated.tick()
    assert len(saturated.asked) >= 4_000 / (500 + 2 * ANSWER_MS) - 1
    assert set(saturated.asked) == {(TOPIC,)}


def test_a_new_topic_is_found_under_a_backlog(saturated):
    begun = saturated.clock.now()
    saturated.await_topic("new", 1_000)
    assert saturated.clock.now() - begun <= 10 * ANSWER_MS
    assert saturated.parts.accumulator.queue_lengths(TOPIC, [0])[0] > 0
