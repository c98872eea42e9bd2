"""The ledger's topic on a real Kafka: what compaction leaves, elections, refused settings, and its creation."""

import logging
import shlex
import time
from contextlib import closing

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.exactly_once import ledger_topic
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.exactly_once.ledger_format import barrier_record, encode_batch, read_key
from spark_kafka_sink.exactly_once.ledger_topic import broker_limit_ms, ensure_ledger, wanted_ledger
from spark_kafka_sink.exactly_once.operator_commands import forget_done
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import TaskAction, WriteKind, task_id
from spark_kafka_sink.records.batch import BatchHeader
from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.testing.kafka_jars import tools_version
from tests.contract.exactly_once.runs import LEDGER, TOPIC, Query
from tests.support.waiting import until

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

CLOCK = SystemClock()
ROWS = [[b"a"], [b"b"]]
SHRUNK = {
    **ledger_topic.SETTINGS,
    "segment.ms": "500",
    "delete.retention.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "1",
}
"""An hour of the ledger's life takes seconds."""

PATIENT = {"max.block.ms": 30_000, "request.timeout.ms": 5_000, "delivery.timeout.ms": 30_000}


@pytest.fixture(scope="module")
def kafka():
    with LocalKafka(properties={"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "500"}) as kafka:
        kafka.create_topic(TOPIC, 2)
        kafka.create_topic(LEDGER, 20, SHRUNK)
        yield kafka


def query(kafka, **fields):
    return Query(kafka.bootstrap_servers, options=PATIENT, **fields)


def live_records(kafka):
    """Every record that is left, tombstones too: partition and key."""
    deadline = CLOCK.now() + 30_000
    found = []
    with closing(Cluster(query(kafka).settings.producer, CLOCK)) as cluster:
        for partition in range(20):
            log = PartitionLog(cluster, TopicPartition(LEDGER, partition))
            offset = log.earliest(deadline)
            while (fetched := log.fetch(offset, deadline)).batches:
                data = [batch for batch in fetched.batches if not batch.header.is_control]
                found += [(partition, record.key) for batch in data for record in batch.records()]
                offset = fetched.next_offset
    return found


def roll(kafka):
    """A record in each partition: a segment ends when the next record comes."""
    deadline = CLOCK.now() + 30_000
    with closing(Cluster(query(kafka).settings.producer, CLOCK)) as cluster:
        for partition in range(20):
            now = CLOCK.epoch_ms()
            batch = encode_batch(BatchHeader(0, 1, now, now), [barrier_record("roll")])
            PartitionLog(cluster, TopicPartition(LEDGER, partition)).append(batch, None, deadline)


def test_compaction_removes_forgotten_jobs_and_leaves_a_stream_one_entry_and_its_last_markers(kafka):
    for number in range(40):
        job = query(kafka, name=f"job-{number}", query="job", kind=WriteKind.VERSION)
        job.run(0, [[b"%d" % number], [b"x"], [b"y"]])
        with closing(Session(job.settings, CLOCK)) as session:
            forget_done(session, CLOCK.epoch_ms() + 1, session.deadline(30_000))
    stream = query(kafka)
    stream.run(0, [[b"x"]] * 9)
    stream.run(1, [[b"x"]] * 4)
    stream.run(2, [[b"x"]] * 4)
    assert len({key for _, key in live_records(kafka)}) > 20, "the cleaner has not come by everywhere yet"
    expected = {b'["app","q1"]', *(b'["app","q1",%d]' % task for task in range(4))}

    def left() -> set[bytes]:
        roll(kafka)
        time.sleep(1)
        return {key for _, key in live_records(kafka) if read_key(key).query is not None}

    until(left, lambda keys: keys == expected, "too many keys are left")
    assert {report.action for report in stream.tasks(stream.plan(), 2, [[b"x"]] * 4)} == {TaskAction.SKIP}
    stream.run(3, [[b"x"]] * 2)


def test_markers_that_compaction_went_over_tell_what_was_committed(kafka):
    """And aborted ones, of which it leaves nothing, are gone."""
    stream = query(kafka, name="compacted")
    stream.run(0, ROWS)
    stream.commit_killed_at(stream.tasks(stream.plan(), 1, ROWS), "between EndTxns")
    for task in range(2):  # the first task's transaction is committed, the second's is aborted by this
        config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": task_id(stream.name, task)}
        with KafkaProducer(config) as late:
            late.init_transactions()
    for _ in range(8):
        roll(kafka)
        time.sleep(1)
    actions = [report.action for report in stream.tasks(stream.plan(), 1, ROWS)]
    assert actions == [TaskAction.VERIFY, TaskAction.REWRITE]


def test_a_ledger_of_which_kafka_refuses_a_setting_has_the_second_set(kafka, caplog, monkeypatch):
    """INVALID_CONFIG. No warning, because the brokers' own ratio is lower than 7."""
    caplog.set_level(logging.WARNING, logger="spark_kafka_sink.exactly_once")
    monkeypatch.setattr(ledger_topic, "SETTINGS", {**ledger_topic.SETTINGS, "min.cleanable.dirty.ratio": "7"})
    with closing(Cluster(query(kafka).settings.producer, CLOCK)) as cluster:
        found = ensure_ledger(cluster, "refused-settings", CLOCK.now() + 30_000)
    assert (found.partitions, found.replication, found.max_message_bytes) == (20, 1, 1_048_588)
    assert (found.settings["segment.ms"], found.settings["min.cleanable.dirty.ratio"]) == ("300000", "0.5")
    assert [record.getMessage() for record in caplog.records] == []


@pytest.fixture
def three_nodes():
    with LocalKafka(nodes=3, properties={"broker.session.timeout.ms": "3000", "min.insync.replicas": "2"}) as kafka:
        kafka.create_topic(TOPIC, 2)
        yield kafka


def test_an_intent_is_found_right_after_an_election(three_nodes):
    kafka, stream = three_nodes, query(three_nodes)
    stream.run(0, ROWS)
    partition = ledger_topic.ledger_partitions("app", LEDGER).partition
    for number in range(1, 5):
        reports = stream.tasks(stream.plan(), number, ROWS)
        stream.commit_killed_at(reports)
        leader = kafka.leader(LEDGER, partition)
        kafka.kill(leader)
        assert {report.action for report in stream.tasks(stream.plan(), number, ROWS)} == {TaskAction.SKIP}
        kafka.start(leader)
        kafka.await_in_sync(LEDGER)
    with closing(Session(stream.settings, CLOCK)) as session:
        assert broker_limit_ms(session.cluster, session.deadline(10_000)) == 900_000


def test_the_command_that_is_told_where_none_may_be_created_creates_the_topic(three_nodes, caplog):
    kafka, stream = three_nodes, query(three_nodes)
    with closing(Cluster(stream.settings.producer, CLOCK)) as cluster:
        command = wanted_ledger(cluster, CLOCK.now() + 30_000).create_command(cluster, LEDGER)
    script, *arguments = shlex.split(command)
    assert script == "kafka-topics.sh"
    kafka._run_tool("org.apache.kafka.tools.TopicCommand", *arguments, version=tools_version(kafka.version))
    kafka.await_in_sync(LEDGER)
    caplog.set_level(logging.WARNING, logger="spark_kafka_sink.exactly_once")
    stream.run(0, ROWS)
    assert [record.getMessage() for record in caplog.records] == []
