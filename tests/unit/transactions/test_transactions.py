"""A transactional producer under a manual clock: what it asks its coordinator when, and what becomes of its records."""

from __future__ import annotations

from collections import deque
from itertools import pairwise, product

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import (
    BrokerError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from spark_kafka_sink.network.api_versions import METADATA
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.metadata_api import MetadataEntity
from spark_kafka_sink.producer import transaction_manager
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.producer.transaction_manager import Append, State, Step, TransactionalCall
from spark_kafka_sink.producer.transaction_requests import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
)
from tests.unit.scripted_engine import RETRIED_BY_JAVA, TOPIC
from tests.unit.scripted_engine import Step as ProduceStep
from tests.unit.transactions.transactional_engine import TRANSACTIONAL_ID, TransactionalEngine, Trouble, partition

both_protocols = pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
GROUP = ConsumerGroupMetadata("readers")
OFFSETS = {partition(0): OffsetAndMetadata(7), partition(1): OffsetAndMetadata(9)}


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def engine(request) -> TransactionalEngine:
    """Of each protocol, with a transaction open."""
    return TransactionalEngine(request.param).begun()


@both_protocols
def test_what_is_asked_for_one_transaction(v2):
    engine = TransactionalEngine(v2, partitions=1, nodes=1).begun()
    engine.append([b"a"])
    engine.call(Step.COMMIT)
    adding = [] if v2 else ["add_partitions_to_txn"]
    assert engine.apis() == ["find_coordinator", "init_producer_id", *adding, "produce", "end_txn"]
    assert dict(engine.asked)["produce"] == (12 if v2 else 11)


def test_a_transaction_in_which_nothing_was_sent_asks_nothing(engine):
    engine.call(Step.COMMIT)
    engine.begin()
    engine.append([b"never sent"])
    engine.call(Step.ABORT)
    assert engine.apis() == ["find_coordinator", "init_producer_id"]


def test_a_transaction_that_is_aborted_stops_its_own_requests_and_no_callers():
    engine = TransactionalEngine(False).begun()
    codes, ends = deque([ErrorCode.coordinator_load_in_progress] * 3 + [ErrorCode.none]), []
    make = MetadataEntity([], False)
    call = Call("metadata", METADATA, None, make, lambda _: [CodeAt("", codes.popleft())], ends.append)
    engine.parts.calls.start(call, "a caller")
    engine.troubles["add_partitions_to_txn"].extend([ErrorCode.concurrent_transactions] * 1_000)
    engine.send([b"a"])
    engine.call(Step.ABORT)
    for _ in range(5):
        engine.spin(1_000)
    assert [end.error for end in ends] == [None]
    assert engine.parts.calls.of(engine.manager) == []


@both_protocols
def test_commit_lets_nothing_linger_and_after_it_batches_linger_again(v2):
    engine = TransactionalEngine(v2, linger_ms=60_000).begun()
    engine.append([b"a"])
    started = engine.clock.now()
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]
    assert engine.clock.now() - started < 100
    engine.begin()
    engine.append([b"b"])
    engine.spin(59_000)
    assert engine.values() == [b"a"]


@pytest.mark.parametrize("step", [Step.BEGIN, Step.PREPARE])
def test_no_other_id_while_a_transaction_of_this_one_is_open(step):
    engine = TransactionalEngine(True).begun()
    engine.append([b"a"])
    if step is Step.PREPARE:
        engine.submit(step)
        engine.turn()
    refused = engine.submit(Step.INIT_AS, transactional_id="other")
    engine.turn()
    with pytest.raises(IllegalStateError):
        refused.result()
    assert engine.manager.transactional_id == TRANSACTIONAL_ID


COORDINATOR_APIS = ["find_coordinator", "init_producer_id", "txn_offset_commit", "end_txn"]
V1_APIS = ["add_partitions_to_txn", "add_offsets_to_txn"]


@both_protocols
@pytest.mark.parametrize(
    ("api", "code"),
    [
        *product([*COORDINATOR_APIS, *V1_APIS], [ErrorCode.coordinator_not_available, Trouble.LOST_AFTER]),
        *product(COORDINATOR_APIS, RETRIED_BY_JAVA),
        ("init_producer_id", ErrorCode.coordinator_load_in_progress),
        ("add_partitions_to_txn", ErrorCode.concurrent_transactions),
        ("add_partitions_to_txn", ErrorCode.unknown_topic_or_partition),
        ("produce", ErrorCode.not_enough_replicas),
        ("produce", ErrorCode.concurrent_transactions),
        ("produce", Trouble.LOST_AFTER),
        ("end_txn", ErrorCode.concurrent_transactions),
        ("end_txn", Trouble.LOST_BEFORE),
        ("end_txn", Trouble.SWALLOWED),
    ],
)
def test_incident_what_passes_and_java_retries_ended_the_producer(v2, api, code):
    engine = TransactionalEngine(v2)
    if not (v2 and api in V1_APIS):
        engine.troubles[api].extend([code] * 3)
    engine.begun()
    engine.append([b"a"])
    engine.call(Step.SEND_OFFSETS, offsets=OFFSETS, group=GROUP)
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]
    assert not engine.troubles[api]
    assert len(engine.offsets()) == 2


def test_incident_940_produce_requests_were_sent_while_markers_were_held_for_five_seconds():
    engine = TransactionalEngine(True, partitions=1, nodes=1).begun()
    engine.troubles["produce"].extend([ErrorCode.concurrent_transactions] * 2_000)
    engine.append([b"a"])
    sent = []
    while engine.clock.now() < 5_000:
        before = len(engine.asked)
        engine.spin(1)
        sent += [engine.clock.now()] * (len(engine.asked) - before)
    assert 8 <= len(sent) <= 14
    pauses = [after - before for before, after in pairwise(sent)]
    assert pauses[0] <= 5 * 1.2 + 1
    for number, pause in enumerate(pauses):
        expected = min(5 * 2**number, engine.config.retry_backoff_max_ms)
        assert 0.8 * expected <= pause <= min(1.2 * expected, engine.config.retry_backoff_max_ms) + 1
    engine.troubles["produce"].clear()
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]


def test_incident_an_end_that_arrived_late_ended_the_next_transaction(engine):
    engine.append([b"a"])
    engine.troubles["end_txn"].append(Trouble.DELAYED)
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]
    engine.begin()
    engine.send([b"b"], receipt=SendReceipt())
    engine.deliver_delayed()
    assert (engine.visible(), engine.open_values()) == ([b"a"], [b"b"])
    engine.call(Step.ABORT)
    assert engine.visible() == [b"a"]
    assert engine.manager.identity.epoch == (2 if engine.v2 else 1)


def test_only_an_end_without_a_response_costs_a_new_epoch():
    engine = TransactionalEngine(False).begun()
    engine.troubles["end_txn"].extend([ErrorCode.concurrent_transactions, ErrorCode.not_coordinator])
    engine.append([b"a"])
    engine.call(Step.COMMIT)
    engine.begin()
    assert engine.manager.identity.epoch == 0
    engine.append([b"b"], receipt=SendReceipt())
    engine.troubles["end_txn"].append(Trouble.LOST_AFTER)
    engine.call(Step.COMMIT)
    assert engine.apis().count("init_producer_id") == 1, "the commit is told before the new epoch is asked for"
    engine.begin()
    assert engine.manager.identity.epoch == 1
    assert engine.visible() == [b"a", b"b"]


@both_protocols
def test_incident_records_of_an_abort_joined_the_commit_before_when_the_cluster_changed_its_protocol(v2):
    """A partition takes records of v2 that have the epoch of a transaction whose markers are not written yet."""
    engine = TransactionalEngine(v2).begun()
    engine.send([b"a"])
    engine.coordinator.hold_markers(True, 0)
    engine.finalize(not v2)
    engine.call(Step.COMMIT)
    begun = engine.submit(Step.BEGIN)
    engine.spin(20)
    engine.send([b"b"], receipt=SendReceipt())
    engine.coordinator.hold_markers(False, 0)
    engine.await_result(begun)
    engine.send([b"c"], receipt=SendReceipt())
    engine.call(Step.ABORT)
    engine.commit_next([b"d"])
    assert engine.visible() == [b"a", b"d"]


def test_a_begin_that_gets_no_new_epoch_says_why():
    engine = TransactionalEngine(False).begun()
    engine.append([b"a"])
    engine.troubles["end_txn"].append(Trouble.LOST_AFTER)
    engine.call(Step.COMMIT)
    engine.init_elsewhere()
    engine.init_elsewhere()
    with pytest.raises(ProducerFencedError):
        engine.begin()
    assert engine.state is State.FATAL_ERROR
    assert engine.visible() == [b"a"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.topic_authorization_failed,
        ErrorCode.transaction_abortable,
        ErrorCode.invalid_txn_state,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
    ],
)
def test_a_failed_batch_fails_its_transaction_until_it_is_aborted(engine, code):
    for index in (0, 1):
        engine.append([b"good"], index)
    engine.spin()
    engine.troubles["produce"].append(code)
    engine.send([b"bad"])
    for step in (Step.COMMIT, Step.BEGIN, Step.PREPARE, Step.SEND_OFFSETS):
        with pytest.raises(TransactionAbortableError, match=code.name.upper()) as raised:
            engine.call(step, group=GROUP)
    assert isinstance(raised.value.__cause__, BrokerError)
    with pytest.raises(TransactionAbortableError):
        engine.parts.append()
    engine.call(Step.ABORT)
    engine.commit_next([b"next"])
    assert (engine.visible(0), engine.visible(1)) == ([b"next"], [])
    assert engine.memory_is_free()


def test_lost_sequences_get_a_new_epoch_after_the_abort_where_endtxn_gives_none():
    engine = TransactionalEngine(False).begun()
    engine.send([b"a"])
    engine.troubles["produce"].append(ErrorCode.topic_authorization_failed)
    engine.send([b"b"])
    engine.call(Step.ABORT)
    assert engine.apis()[-2:] == ["end_txn", "init_producer_id"]
    assert engine.manager.identity.epoch == 1


def _committing(engine: TransactionalEngine) -> TransactionalCall:
    """EndTxn is on its way, and its response does not come."""
    engine.append([b"in time"])
    engine.troubles["end_txn"].append(Trouble.SWALLOWED)
    answer = engine.submit(Step.COMMIT)
    engine.spin()
    assert engine.apis()[-1] == "end_txn"
    return answer


def test_incident_rows_lost_by_another_thread_while_end_txn_was_on_its_way_killed_the_sender(engine, monkeypatch):
    """A: a call with rows is about to note itself. B: the transaction is committed. A: sees that, and is refused."""
    answers = []

    def append(number: int, open_appends: dict[Append, None]) -> Append:
        answers.append(_committing(engine))
        return Append(number, open_appends)

    monkeypatch.setattr(transaction_manager, "Append", append)
    with pytest.raises(IllegalStateError, match="EndTxn is sent"):
        engine.parts.append()
    monkeypatch.undo()
    engine.await_result(answers[0])
    assert engine.visible() == [b"in time"]
    engine.commit_next([b"next"])
    assert engine.visible() == [b"in time", b"next"]


def test_rows_that_another_thread_appends_while_end_txn_is_on_its_way_are_refused(engine):
    answer = _committing(engine)
    late = SendReceipt()
    engine.append([b"late"], receipt=late)
    engine.await_result(answer)
    with pytest.raises(IllegalStateError, match="EndTxn is sent"):
        late.wait(0)
    assert engine.values() == engine.visible() == [b"in time"]
    assert engine.memory_is_free()


def test_a_commit_that_the_coordinator_refuses_can_be_aborted(engine):
    engine.append([b"a"])
    engine.troubles["end_txn"].append(ErrorCode.transaction_abortable)
    with pytest.raises(TransactionAbortableError):
        engine.call(Step.COMMIT)
    engine.call(Step.ABORT)
    assert engine.visible() == []
    assert engine.state is State.READY


@pytest.mark.parametrize("lost", [True, False])
def test_incident_rows_lost_just_before_the_commit_was_taken_were_noted_after_it(engine, lost):
    """Nor may it be committed while a call is on its way, which may have been interrupted."""
    append = engine.parts.append()
    append.__enter__()
    answer = engine.submit(Step.COMMIT)
    if lost:
        append.__exit__(None, KafkaTimeoutError("buffer.memory stayed full"), None)
    with pytest.raises(TransactionAbortableError, match="stayed full" if lost else "has not returned"):
        engine.await_result(answer)
    engine.call(Step.ABORT)
    engine.commit_next([b"next"])
    assert engine.visible() == [b"next"]


@pytest.mark.parametrize("size", [1, 16_384], ids=["small call", "batches of its own"])
def test_rows_that_the_sender_thread_cannot_take_fail_their_transaction(engine, monkeypatch, size):
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    engine.append([b"v" * size])
    with monkeypatch.context() as patched:
        patched.setattr(engine.parts.sender.intake, "_encode_before", fail)
        engine.turn()
    with pytest.raises(MemoryError):
        engine.receipt.wait(0)
    with pytest.raises(TransactionAbortableError, match="no room"):
        engine.call(Step.COMMIT)
    engine.call(Step.ABORT)
    engine.commit_next([b"next"])
    assert engine.visible() == [b"next"]
    assert engine.memory_is_free()


@both_protocols
def test_a_batch_expired_in_flight_is_waited_for_before_its_transaction_ends(v2):
    engine = TransactionalEngine(v2, partitions=1, nodes=1, delivery_timeout_ms=31_000, request_timeout_ms=30_900)
    engine.begun()
    engine.send([b"first"])
    engine.append([b"late"])
    engine.clock.advance(500)
    engine.steps.append(ProduceStep(hold=True))
    engine.spin()
    engine.spin(30_600)
    assert engine.state is State.ABORTABLE_ERROR
    answer = engine.submit(Step.ABORT)
    engine.spin()
    assert "end_txn" not in engine.apis()
    engine.release_held()
    engine.await_result(answer)
    engine.commit_next([b"next"])
    assert engine.visible() == [b"next"]


@both_protocols
@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("find_coordinator", ErrorCode.transactional_id_authorization_failed),
        ("init_producer_id", ErrorCode.transactional_id_authorization_failed),
        ("init_producer_id", ErrorCode.invalid_transaction_timeout),
        ("init_producer_id", ErrorCode.producer_fenced),
    ],
)
def test_a_refused_init_is_final(v2, api, code):
    engine = TransactionalEngine(v2)
    engine.troubles[api].append(code)
    with pytest.raises(BrokerError, match=code.name.upper()):
        engine.call(Step.INIT)
    with pytest.raises(BrokerError, match=code.name.upper()):
        engine.call(Step.BEGIN)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.group_authorization_failed, TransactionAbortableError),
        (ErrorCode.illegal_generation, TransactionAbortableError),
        (ErrorCode.fenced_instance_id, TransactionAbortableError),
        (ErrorCode.transaction_abortable, TransactionAbortableError),
        (ErrorCode.producer_fenced, ProducerFencedError),
        (ErrorCode.unsupported_for_message_format, BrokerError),
    ],
)
def test_refused_offsets_fail_the_transaction_or_the_producer(engine, code, error):
    engine.troubles["txn_offset_commit"].append(code)
    with pytest.raises(error, match=code.name.upper()):
        engine.call(Step.SEND_OFFSETS, offsets=OFFSETS, group=GROUP)
    with pytest.raises(error):
        engine.call(Step.COMMIT)


def test_an_abort_is_not_kept_by_partitions_that_cannot_be_added():
    engine = TransactionalEngine(False).begun()
    engine.troubles["add_partitions_to_txn"].extend([ErrorCode.unknown_topic_or_partition] * 1000)
    engine.append([b"a"])
    engine.spin(5_000)
    started = engine.clock.now()
    engine.call(Step.ABORT)
    assert engine.clock.now() - started < 100
    assert engine.state is State.READY
    assert not engine.parts.accumulator.has_incomplete
    engine.troubles.clear()
    engine.begin()
    engine.append([b"b"], 1, SendReceipt())
    engine.call(Step.COMMIT)
    assert engine.added[-1] == {1}, "nothing of the aborted transaction is left"


@pytest.mark.parametrize("size", [1, 16_384], ids=["small call", "batches of its own"])
@pytest.mark.parametrize("begun", [False, True])
def test_what_was_appended_too_late_does_not_slip_into_the_next_transaction(begun, size):
    """A: calls see a transaction open. B: it ends, and the next one begins or is about to. A: their rows are put."""
    engine = TransactionalEngine(True).begun()
    late = engine.manager.number
    engine.call(Step.COMMIT)
    if begun:
        engine.begin()
    future = engine.parts.records.put(ProducerRecord(TOPIC, b"late", partition=0), None, b"late", late)
    engine.append([b"v" * size], transaction=late)
    if not begun:
        engine.begin()
    engine.append([b"a"], receipt=SendReceipt())
    engine.call(Step.COMMIT)
    error, words = (TransactionAbortedError, "has ended") if begun else (IllegalStateError, "no transaction open")
    for outcome in (engine.receipt.wait, future.result):
        with pytest.raises(error, match=words):
            outcome(0)
    assert engine.values() == engine.visible() == [b"a"]
    assert engine.memory_is_free()


def test_an_abort_overtakes_rows_that_the_sender_thread_has_not_taken(engine):
    """It would take them in several rounds."""
    for _ in range(600):
        engine.append([b"v"])
    call = engine.submit(Step.ABORT)
    engine.turn()
    assert engine.state is not State.IN_TRANSACTION
    engine.await_result(call)
    assert "produce" not in engine.apis()
    with pytest.raises(TransactionAbortedError):
        engine.receipt.wait(0)
    engine.commit_next([b"next"])
    assert engine.visible() == [b"next"]
    assert engine.memory_is_free()


def test_an_abort_replaces_offsets_that_are_still_on_their_way():
    engine = TransactionalEngine(True).begun()
    engine.troubles["txn_offset_commit"].extend([ErrorCode.coordinator_load_in_progress] * 1000)
    answer = engine.submit(Step.SEND_OFFSETS, offsets=OFFSETS, group=GROUP)
    engine.spin(5_000)
    engine.call(Step.ABORT)
    with pytest.raises(TransactionAbortedError):
        answer.result()
    assert engine.offsets() == {}
