"""What the sender's log says while brokers do not acknowledge, under a manual clock."""

import contextlib
import logging
import re
import threading

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import ProducerClosedError
from spark_kafka_sink.producer.transaction_manager import Step as Step_
from tests.unit.scripted_engine import Engine, Step
from tests.unit.transactions.transactional_engine import TransactionalEngine


@pytest.fixture
def lines(caplog):
    """The warnings of the sender."""
    caplog.set_level(logging.WARNING, "spark_kafka_sink.sender")

    def read():
        return [record.getMessage() for record in caplog.records if record.name == "spark_kafka_sink.sender"]

    return read


def run(engine, ms, step=100):
    """Lets time pass, the loop turning whenever it wants to."""
    end = engine.clock.now() + ms
    while engine.clock.now() < end:
        engine.spin(min(max(engine.wake_at - engine.clock.now(), 1.0), step, end - engine.clock.now()))


def connected(**config):
    return Engine(**{"delivery_timeout_ms": 120_000, **config}).connect()


def test_a_stall_is_told_after_ten_seconds_and_then_every_thirty_with_what_is_waited_for(lines):
    engine = connected(request_timeout_ms=60_000)
    engine.steps.append(Step(swallow=True))
    engine.append([b"a", b"b"])
    run(engine, 9_900)
    assert lines() == []
    assert engine.wake_at <= 10_000, "without traffic, too"
    run(engine, 200)
    assert lines() == [
        "No acknowledgement for 10 s: 1 batch (77 bytes) waits. The oldest batch, of t-0, is 10 s old, and "
        "delivery.timeout.ms leaves it 110 s. n0:9092 (id: 0) has not responded to Produce v12 for 9900 ms"
    ]
    run(engine, 31_000)
    assert [line.partition(":")[0] for line in lines()] == [f"No acknowledgement for {s} s" for s in (10, 40)]


def test_acknowledgements_and_lingering_keep_the_log_silent_and_an_idle_producer_does_not_wake(lines):
    engine = connected()
    for _ in range(30):
        engine.append([b"a"])
        run(engine, 1_000)
    assert engine.wake_at > engine.clock.now() + 60_000
    lingering = connected(linger_ms=60_000)
    lingering.append([b"a"])
    run(lingering, 40_000)
    assert lines() == []


def test_retries_are_told_at_once_and_then_counted_by_error(lines):
    engine = connected()
    refusals = [ErrorCode.not_enough_replicas, ErrorCode.not_leader_or_follower] * 15
    engine.steps.extend(Step(before={0: code}) for code in refusals)
    engine.append([b"a"])
    run(engine, 40_000)
    told = [line for line in lines() if not line.startswith("No acknowledgement")]
    assert [line.partition(";")[0] for line in told[:2]] == [
        "Sending a batch of t-0 again after attempt 1: t-0: NOT_ENOUGH_REPLICAS",
        "Sending a batch of t-0 again after attempt 2: t-0: NOT_LEADER_OR_FOLLOWER",
    ]
    counts = [re.search(r"\((\d+) more in the last 3\d s\)$", line) for line in told[2:]]
    assert len(counts) <= 2
    assert all(count is not None and int(count[1]) >= 10 for count in counts)
    stall = next(line for line in lines() if line.startswith("No acknowledgement"))
    assert " s. t-0: NOT_" in stall


@pytest.fixture
def connection_warnings(caplog):
    def read():
        network = [each for each in caplog.records if each.name == "spark_kafka_sink.network"]
        return [each.getMessage() for each in network if each.levelno >= logging.WARNING]

    return read


def test_a_connection_that_fails_again_and_again_is_told_every_thirty_seconds(connection_warnings):
    engine = connected()
    engine.steps.extend(Step(lose_response=True) for _ in range(40))
    for _ in range(40):
        engine.append([b"a"])
        run(engine, 1_000)
    first, second = connection_warnings()
    assert "Connection reset by peer" in first
    assert "Connection reset by peer" in second
    assert re.search(r"\(\d\d more in the last 3\d s\)$", second)


def refuse_connections(engine, seconds):
    engine.transport.accept_all = False
    for _ in range(seconds):
        for connection in sorted(engine.transport.open):
            engine.transport.drop(connection, "Connection refused")
        engine.spin(1_000)


def test_an_idle_producer_that_loses_its_brokers_is_no_trouble(lines, connection_warnings):
    """Incident: README's first example ended with "Connection to node 1 could not be established", twice."""
    engine = connected(metadata_max_age_ms=5_000)
    refuse_connections(engine, 40)
    assert lines() == connection_warnings() == []
    engine.append([b"a"])
    refuse_connections(engine, 12)
    assert any("Connection refused" in line for line in lines())


def test_incident_a_lost_broker_was_told_in_two_lines_each_ten_seconds(lines, connection_warnings):
    """By a sum of failed connections, and by the line about the rows that wait for them."""
    engine = connected(enable_idempotence=False, bootstrap_servers="n0:9092")
    engine.append([b"a"])
    refuse_connections(engine, 28)
    addresses = [re.search(r"Connection to (\S+)", text).group(1) for text in connection_warnings()]
    assert addresses
    assert len({*addresses}) == len(addresses), "a bootstrap server is also a node of the cluster"
    refuse_connections(engine, 14)
    assert [line.partition(":")[0] for line in lines()] == [f"No acknowledgement for {s} s" for s in (10, 40)]
    assert all("Connection refused" in line for line in lines())


def test_incident_a_stall_gave_its_reason_twice(lines):
    """What keeps the leader from responding is also the last error of the rows."""
    engine = connected(reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)
    engine.steps.append(Step(swallow=True))
    engine.send([b"a"])
    refuse_connections(engine, 11)
    stall = next(line for line in lines() if line.startswith("No acknowledgement"))
    assert stall.count("Connection to n0:9092 (id: 0) was lost: Connection refused") == 1


def waiting(engine, partition=None):
    """A thread that waits for the topic, or for a partition of it."""
    metadata = engine.parts.metadata

    def append():
        with contextlib.suppress(ProducerClosedError):
            metadata.wait_for_topics({"t": partition}, 60_000)

    caller = threading.Thread(target=append, daemon=True)
    caller.start()
    while not metadata.is_asked:
        caller.join(0.001)
    return caller


def test_rows_that_wait_for_metadata_are_told_with_the_reason(lines):
    engine = Engine()
    found = engine.transport.answer
    engine.transport.answer = lambda request: None if request.api == "metadata" else found(request)
    metadata = engine.parts.metadata
    caller = waiting(engine)
    engine.spin()
    assert engine.wake_at <= 10_000, "the request has 30 s"
    run(engine, 41_000)
    metadata.fail_waiters(ProducerClosedError("closed"))
    caller.join()
    assert [line.partition(":")[0] for line in lines()] == [
        f"Rows have waited for metadata for {s} s" for s in (10, 40)
    ]
    assert lines()[0].endswith(": boot:9092 has not responded to Metadata v12 for 10000 ms")
    before = len(lines())
    run(engine, 41_000)
    assert len(lines()) == before


def test_incident_rows_that_waited_for_a_partition_were_told_that_no_broker_responded(lines):
    engine = connected()
    caller = waiting(engine, partition=7)
    run(engine, 11_000)
    engine.parts.metadata.fail_waiters(ProducerClosedError("closed"))
    caller.join()
    (line,) = lines()
    assert line.startswith("Rows have waited for metadata for 10 s: The brokers respond, but their metadata lacks")


def waiting_ends(engine, lines, step):
    """The lines of the 41 s that a transactional call waits, and those of the time after it has ended."""
    result = engine.submit(step)
    engine.spin()
    assert engine.wake_at <= engine.clock.now() + 10_000
    run(engine, 41_000)
    waited = lines()
    engine.troubles.clear()
    engine.await_result(result)
    run(engine, 41_000)
    return waited, lines()[len(waited) :]


@pytest.fixture
def stalls(caplog):
    return lambda: [text for text in caplog.messages if " has waited for " in text]


@pytest.mark.parametrize("api", ["init_producer_id", "end_txn"])
def test_a_transactional_call_that_brokers_keep_refusing_is_told_with_the_reason(stalls, api):
    engine = TransactionalEngine(v2=True, delivery_timeout_ms=120_000).connect()
    if api == "end_txn":
        engine.call(Step_.INIT)
        engine.call(Step_.BEGIN)
        engine.append([b"a"])
    engine.troubles[api].extend([ErrorCode.concurrent_transactions] * 10_000)
    waited, after = waiting_ends(engine, stalls, Step_.INIT if api == "init_producer_id" else Step_.COMMIT)
    name = {"init_producer_id": "InitProducerId", "end_txn": "EndTxn"}[api]
    assert [line.partition(" s:")[0] for line in waited] == [
        f"{name} for transactional.id tx has waited for {seconds}" for seconds in (10, 40)
    ]
    assert "CONCURRENT_TRANSACTIONS" in waited[0]
    assert after == []
