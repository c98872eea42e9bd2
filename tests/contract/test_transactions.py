"""What a transactional producer promises in protocol v2 (4.1) and v1 (3.9), as an independent consumer sees it."""

import os
import pickle
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import BrokerError, ProducerFencedError, TransactionAbortableError
from spark_kafka_sink.exactly_once.committer import EndVerdict, resume
from spark_kafka_sink.producer.transaction_requests import OffsetAndMetadata, PreparedTransaction
from tests.contract.exactly_once.runs import end_transactions, fence
from tests.faults.exactly_once.reader import read_committed
from tests.support.kafka_versions import TEST_BROKER, on_kafka
from tests.support.waiting import DEADLINE_S

DEADLINE_MS = DEADLINE_S * 1000
pytestmark = on_kafka("4.4.0", "3.9.1", f"{TEST_BROKER} 4.1", f"{TEST_BROKER} 3.9")


def new_topic(cluster, partitions=1, **configs):
    topic = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions, {name.replace("_", "."): value for name, value in configs.items()})
    return topic


def new_id():
    return f"tx-{uuid.uuid4().hex[:8]}"


def servers(cluster):
    return {"bootstrap.servers": cluster.bootstrap_servers}


@contextmanager
def transactional(cluster, transactional_id=None, **config):
    """With its id initialised."""
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    with KafkaProducer({**servers(cluster), "transactional.id": transactional_id or new_id(), **dotted}) as producer:
        producer.init_transactions()
        yield producer


def send(producer, topic, *values, partition=0):
    for value in values:
        producer.send(ProducerRecord(topic, value, partition=partition))


def end(producer, commit):
    (producer.commit_transaction if commit else producer.abort_transaction)()


def committed(cluster, topic):
    """What a read_committed consumer gets, by partition."""
    return read_committed(cluster.bootstrap_servers, topic)


def offset_of(cluster, group, topic):
    consumer = Consumer({**servers(cluster), "group.id": group})
    (known,) = consumer.committed([TopicPartition(topic, 0)], DEADLINE_S)
    consumer.close()
    return int(known.offset)


def prepared(cluster, topic, *values, transactional_id=None):
    """By a producer that is gone."""
    with transactional(cluster, transactional_id) as producer:
        producer.begin_transaction()
        send(producer, topic, *values)
        return producer.prepare_transaction()


def test_a_transaction_over_many_partitions_and_batches_is_whole(cluster):
    topic = new_topic(cluster, 4)
    expected: dict[int, list[bytes]] = {partition: [] for partition in range(4)}
    with transactional(cluster, batch_size=2_000) as producer:
        for number in range(8):
            producer.begin_transaction()
            for partition in range(4):
                values = [b"%d-%d" % (number, row) + b"x" * 100 for row in range(100)]
                send(producer, topic, *values, partition=partition)
                if number % 2:
                    expected[partition] += values
            end(producer, number % 2)
    assert committed(cluster, topic) == expected


def test_offsets_go_with_their_transaction(cluster):
    topic, group = new_topic(cluster), f"g-{uuid.uuid4().hex[:8]}"
    with transactional(cluster) as producer:
        for number, commit in ((5, True), (9, False)):
            producer.begin_transaction()
            send(producer, topic, b"%d" % number)
            producer.send_offsets_to_transaction({(topic, 0): OffsetAndMetadata(number, "read")}, group)
            end(producer, commit)
    assert committed(cluster, topic) == {0: [b"5"]}
    assert offset_of(cluster, group, topic) == 5


def test_what_a_killed_process_prepared_is_committed_by_another(cluster):
    topic, transactional_id = new_topic(cluster), new_id()
    program = (
        "import sys\n"
        "from spark_kafka_sink import KafkaProducer, ProducerRecord\n"
        "producer = KafkaProducer({'bootstrap.servers': sys.argv[1], 'transactional.id': sys.argv[3]})\n"
        "producer.init_transactions()\n"
        "producer.begin_transaction()\n"
        "for row in range(100): producer.send(ProducerRecord(sys.argv[2], b'%d' % row))\n"
        "print(repr(producer.prepare_transaction()), flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, cluster.bootstrap_servers, topic, transactional_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    transaction = eval(line, {"PreparedTransaction": PreparedTransaction})
    assert transaction.transactional_id == transactional_id
    resume(transaction, servers(cluster)).commit(DEADLINE_MS)
    assert committed(cluster, topic) == {0: [b"%d" % row for row in range(100)]}


@pytest.mark.parametrize("commit", [True, False])
def test_incident_no_other_process_could_end_a_prepared_transaction_without_records(cluster, commit):
    """Its coordinator does not know it. One with records that is gone stays an error."""
    topic = new_topic(cluster)
    empty = pickle.loads(pickle.dumps(prepared(cluster, topic)))
    ended = resume(empty, servers(cluster))
    identity = ended.commit(DEADLINE_MS) if commit else ended.abort(DEADLINE_MS)
    assert (empty.is_empty, identity.key) == (True, empty.key)
    gone = replace(empty, is_empty=False)
    if commit:
        with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
            resume(gone, servers(cluster)).commit(DEADLINE_MS)


def test_incident_records_of_a_resumed_producer_passed_for_those_that_its_epoch_had_written_before(cluster):
    """EndTxn of protocol v1 leaves the epoch as it is, and a partition knows the first sequence numbers already."""
    topic = new_topic(cluster)
    identity = resume(prepared(cluster, topic, b"a"), servers(cluster)).commit(DEADLINE_MS)
    with KafkaProducer({**servers(cluster), "transactional.id": identity.transactional_id}) as producer:
        producer.resume_transactions(identity)
        producer.begin_transaction()
        send(producer, topic, b"b")
        producer.commit_transaction()
    assert committed(cluster, topic) == {0: [b"a", b"b"]}


def test_a_verdict_may_be_told_again_but_not_changed(cluster):
    topic = new_topic(cluster)
    for commit in (True, False):
        transaction = prepared(cluster, topic, b"%d" % commit)
        verdict = EndVerdict.COMMITTED if commit else EndVerdict.ABORTED
        for _ in range(3):
            (outcome,) = end_transactions(servers(cluster), [(transaction, commit)], DEADLINE_MS)
            assert (outcome.verdict, outcome.error) == (verdict, None)
        (outcome,) = end_transactions(servers(cluster), [(transaction, not commit)], DEADLINE_MS)
        assert (outcome.verdict, outcome.error.code) == (EndVerdict.GONE, 48)
    assert committed(cluster, topic) == {0: [b"1"]}


def test_a_prepared_transaction_is_gone_once_its_id_is_initialised_again(cluster):
    topic = new_topic(cluster)
    transaction = prepared(cluster, topic, b"a")
    fence(servers(cluster), transaction.transactional_id, DEADLINE_MS)
    with pytest.raises(ProducerFencedError, match="PRODUCER_FENCED"):
        resume(transaction, servers(cluster)).commit(DEADLINE_MS)
    (outcome,) = end_transactions(servers(cluster), [(transaction, True)], DEADLINE_MS)
    assert (outcome.verdict, outcome.error.code) == (EndVerdict.GONE, 90)
    assert committed(cluster, topic) == {0: []}


def test_many_are_ended_at_once_each_with_its_own_verdict(cluster):
    topic = new_topic(cluster)
    transactions = []
    for number in range(12):
        identity = fence(servers(cluster), new_id(), DEADLINE_MS)
        config = {**servers(cluster), "transactional.id": identity.transactional_id}
        with KafkaProducer(config) as producer:
            producer.resume_transactions(identity)
            producer.begin_transaction()
            send(producer, topic, b"%d" % number)
            transactions.append(producer.prepare_transaction())
    endings = [(transaction, number % 3 != 0) for number, transaction in enumerate(transactions)]
    outcomes = end_transactions(servers(cluster), endings, DEADLINE_MS)
    assert [outcome.prepared for outcome in outcomes] == transactions
    assert [outcome.verdict is EndVerdict.COMMITTED for outcome in outcomes] == [commit for _, commit in endings]
    (values,) = committed(cluster, topic).values()
    assert sorted(values) == sorted(b"%d" % number for number in range(12) if number % 3)


def test_a_producer_that_prepared_goes_on_under_another_id(cluster):
    """And leaves what it prepared alone, also when it comes back to an id that it had before."""
    topic, ids = new_topic(cluster, 2), [new_id() for _ in range(3)]
    endings = []
    with KafkaProducer({**servers(cluster), "transactional.id": new_id()}) as producer:
        for turn in range(2):
            for number, transactional_id in enumerate(ids):
                identity = producer.init_transactions(transactional_id=transactional_id)
                producer.begin_transaction()
                for partition in range(2):
                    send(producer, topic, b"%d%d a" % (turn, number), b"%d%d b" % (turn, number), partition=partition)
                prepared = producer.prepare_transaction()
                assert (prepared.transactional_id, prepared.identity) == (transactional_id, identity.identity)
                endings.append((prepared, number != 1))
            outcomes = end_transactions(servers(cluster), endings, DEADLINE_MS)
            assert [outcome.verdict is EndVerdict.COMMITTED for outcome in outcomes] == [yes for _, yes in endings]
            endings.clear()
        producer.init_transactions(transactional_id=ids[0])
        producer.begin_transaction()
        send(producer, topic, b"its own")
        producer.commit_transaction()
    both = [b"00 a", b"00 b", b"02 a", b"02 b", b"10 a", b"10 b", b"12 a", b"12 b"]
    values = committed(cluster, topic)
    # Transactions that are open at the same time are read in the order of their records.
    assert values == {0: [*both, b"its own"], 1: both}


def test_the_same_id_again_aborts_what_it_prepared(cluster):
    topic, transactional_id = new_topic(cluster), new_id()
    with transactional(cluster, transactional_id) as producer:
        producer.begin_transaction()
        send(producer, topic, b"a")
        prepared = producer.prepare_transaction()
        producer.init_transactions(transactional_id=transactional_id)
        producer.begin_transaction()
        send(producer, topic, b"b")
        producer.commit_transaction()
    (outcome,) = end_transactions(servers(cluster), [(prepared, True)], DEADLINE_MS)
    assert outcome.verdict is EndVerdict.GONE
    assert committed(cluster, topic) == {0: [b"b"]}


def test_a_zombie_is_fenced(cluster):
    topic, transactional_id = new_topic(cluster), new_id()
    with transactional(cluster, transactional_id) as zombie:
        zombie.begin_transaction()
        send(zombie, topic, b"zombie")
        zombie.flush()
        with transactional(cluster, transactional_id) as producer:
            with pytest.raises(ProducerFencedError):
                zombie.commit_transaction()
            with pytest.raises(ProducerFencedError):
                zombie.send(ProducerRecord(topic, b"more"))
            producer.begin_transaction()
            send(producer, topic, b"a")
            producer.commit_transaction()
    assert committed(cluster, topic) == {0: [b"a"]}


def test_a_zombie_that_goes_on_writing_writes_nothing(cluster):
    topic, transactional_id = new_topic(cluster), new_id()
    with transactional(cluster, transactional_id) as zombie:
        zombie.begin_transaction()
        send(zombie, topic, b"zombie")
        zombie.flush()
        fence(servers(cluster), transactional_id, DEADLINE_MS)
        send(zombie, topic, b"zombie again")
        with pytest.raises((TransactionAbortableError, ProducerFencedError)):
            zombie.commit_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.abort_transaction()
    assert committed(cluster, topic) == {0: []}


def test_a_fence_is_taken_again_only_while_it_stands(cluster):
    transactional_id = new_id()
    first = fence(servers(cluster), transactional_id, DEADLINE_MS)
    second = fence(servers(cluster), transactional_id, DEADLINE_MS, held=first)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
    fence(servers(cluster), transactional_id, DEADLINE_MS)
    with pytest.raises(ProducerFencedError):
        fence(servers(cluster), transactional_id, DEADLINE_MS, held=second)


def test_a_refused_record_fails_its_transaction_and_not_the_next(cluster):
    topic = new_topic(cluster, max_message_bytes="2000")
    with transactional(cluster) as producer:
        producer.begin_transaction()
        send(producer, topic, b"good")
        producer.flush()
        send(producer, topic, b"x" * 5_000)
        with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE") as raised:
            producer.commit_transaction()
        assert isinstance(raised.value.__cause__, BrokerError)
        producer.abort_transaction()
        producer.begin_transaction()
        send(producer, topic, b"next")
        producer.commit_transaction()
    assert committed(cluster, topic) == {0: [b"next"]}


def numbered(first, rows):
    return [b"%08d" % number + b"x" * 92 for number in range(first, first + rows)]


def test_batches_larger_than_the_topic_takes_are_committed_whole(cluster):
    topic = new_topic(cluster, 2, max_message_bytes="20000")
    with transactional(cluster) as producer:
        for number in range(3):
            producer.begin_transaction()
            for partition in (0, 1):
                send(producer, topic, *numbered(number * 3_000, 3_000), partition=partition)
            if number < 2:
                end(producer, number == 0)
            else:
                left = producer.prepare_transaction()
    (outcome,) = end_transactions(servers(cluster), [(left, True)], DEADLINE_MS)
    assert outcome.verdict is EndVerdict.COMMITTED
    expected = numbered(0, 3_000) + numbered(6_000, 3_000)
    assert committed(cluster, topic) == {0: expected, 1: expected}
