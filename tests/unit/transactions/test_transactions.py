"""A transactional producer under a manual clock: what it asks its coordinator when, and what becomes of its records."""

from __future__ import annotations

import pickle
from collections import deque
from itertools import pairwise, product

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.waiting import Outcome
from spark_kafka_sink.errors import (
    BrokerError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from spark_kafka_sink.producer.append.receipt import SendReceipt
from spark_kafka_sink.producer.transactions.manager import State, Step
from spark_kafka_sink.producer.transactions.requests import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
)
from spark_kafka_sink.testing.broker.state.transactions import State as TransactionState
from tests.unit.scripted_engine import Step as ProduceStep
from tests.unit.transactions.transactional_engine import (
    TRANSACTIONAL_ID,
    TransactionalEngine,
    Trouble,
    partition,
)

both_protocols = pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
GROUP = ConsumerGroupMetadata("readers")
OFFSETS = {partition(0): OffsetAndMetadata(7), partition(1): OffsetAndMetadata(9)}


@both_protocols
def test_what_is_asked_for_one_transaction(v2):
    engine = TransactionalEngine(v2, partitions=1, nodes=1).begun()
    engine.append([b"a"])
    engine.call(Step.COMMIT)
    adding = [] if v2 else ["add_partitions_to_txn"]
    assert engine.apis() == ["find_coordinator", "init_producer_id", *adding, "produce", "end_txn"]
    assert dict(engine.asked)["produce"] == (12 if v2 else 11)


@both_protocols
def test_a_transaction_in_which_nothing_was_sent_asks_nothing(v2):
    engine = TransactionalEngine(v2).begun()
    engine.call(Step.COMMIT)
    engine.begin()
    engine.append([b"never sent"])
    engine.call(Step.ABORT)
    assert engine.apis() == ["find_coordinator", "init_producer_id"]


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


@both_protocols
def test_a_prepared_transaction_stays_open_and_names_itself(v2):
    engine = TransactionalEngine(v2).begun()
    engine.append([b"a"])
    prepared = engine.call(Step.PREPARE)
    assert prepared == PreparedTransaction(TRANSACTIONAL_ID, 1000, 0, 5 if v2 else 3)
    assert pickle.loads(pickle.dumps(prepared)) == prepared
    assert (engine.values(), engine.visible()) == ([b"a"], [])
    assert engine.transaction_state is TransactionState.ONGOING
    for step in (Step.BEGIN, Step.PREPARE, Step.SEND_OFFSETS):
        with pytest.raises(IllegalStateError, match="has prepared its transaction"):
            engine.call(step, group=GROUP)
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]


@pytest.mark.parametrize("state", [State.INITIALIZING, State.IN_TRANSACTION, State.PREPARING, State.ABORTABLE_ERROR])
def test_no_other_id_while_anything_of_this_one_is_under_way(state):
    engine = TransactionalEngine(True)
    if state is State.INITIALIZING:
        engine.submit(Step.INIT)
        engine.turn()
    else:
        engine.begun()
        engine.append([b"a"])
    if state is State.PREPARING:
        engine.submit(Step.PREPARE)
        engine.turn()
    if state is State.ABORTABLE_ERROR:
        engine.troubles["produce"].append(ErrorCode.policy_violation)
        engine.spin(100)
    assert engine.state is state
    refused = engine.submit(Step.INIT_AS, transactional_id="other")
    engine.turn()
    with pytest.raises((IllegalStateError, TransactionAbortableError)):
        refused.value()
    assert engine.manager.transactional_id == TRANSACTIONAL_ID


@both_protocols
def test_places_of_coordinators_are_not_kept_without_an_end(v2):
    engine = TransactionalEngine(v2)
    for number in range(1_003):
        engine.call(Step.INIT_AS, transactional_id=f"tx-{number}")
    assert len(engine.manager._calls._located) == 3
    engine.call(Step.INIT_AS, transactional_id="tx-1002")
    assert [api for api, _ in engine.asked[-2:]] == ["init_producer_id"] * 2, "the last ones are known"


@both_protocols
def test_offsets_are_committed_with_the_transaction(v2):
    engine = TransactionalEngine(v2).begun()
    engine.call(Step.SEND_OFFSETS, offsets=OFFSETS, group=GROUP)
    assert engine.offsets() == {}
    engine.call(Step.COMMIT)
    assert engine.offsets() == {("t", 0): 7, ("t", 1): 9}
    adding = [] if v2 else ["add_offsets_to_txn"]
    assert engine.apis()[2:] == [*adding, "find_coordinator", "txn_offset_commit", "end_txn"]
    assert dict(engine.asked)["txn_offset_commit"] == (5 if v2 else 4)


RETRIED_BY_JAVA = [
    ErrorCode.not_controller,
    ErrorCode.not_enough_replicas,
    ErrorCode.kafka_storage_error,
    ErrorCode.network_exception,
    ErrorCode.not_leader_or_follower,
    ErrorCode.leader_not_available,
]
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


@pytest.mark.parametrize(
    ("api", "v2"), [("add_partitions_to_txn", False), ("end_txn", True), ("end_txn", False), ("init_producer_id", True)]
)
def test_calls_that_wait_for_markers_slow_down_too(api, v2):
    engine = TransactionalEngine(v2, partitions=1, nodes=1)
    if api == "init_producer_id":
        result = engine.submit(Step.INIT)
        engine.troubles[api].extend([ErrorCode.concurrent_transactions] * 2_000)
    else:
        engine.begun()
        engine.append([b"a"])
        engine.troubles[api].extend([ErrorCode.concurrent_transactions] * 2_000)
        result = engine.submit(Step.COMMIT)
    end = engine.clock.now() + 5_000
    while engine.clock.now() < end:
        engine.spin(1)
    assert 8 <= [name for name, _ in engine.asked].count(api) <= 14
    engine.troubles[api].clear()
    engine.await_result(result)


@both_protocols
def test_incident_an_end_that_arrived_late_ended_the_next_transaction(v2):
    engine = TransactionalEngine(v2).begun()
    engine.append([b"a"])
    engine.troubles["end_txn"].append(Trouble.DELAYED)
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]
    engine.begin()
    engine.append([b"b"], receipt=SendReceipt())
    engine.spin()
    engine.deliver_delayed()
    assert (engine.visible(), engine.open_values()) == ([b"a"], [b"b"])
    engine.call(Step.ABORT)
    assert engine.visible() == [b"a"]
    assert engine.manager.identity.epoch == (2 if v2 else 1)


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


def test_the_coordinator_is_looked_up_again_when_it_cannot_be_reached():
    engine = TransactionalEngine(True, partitions=1).begun()
    engine.lose_node("n0")
    engine.coordinator_node = 1
    engine.leaders[0] = 1
    engine.append([b"a"])
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]


@both_protocols
def test_a_broker_that_forgot_a_producer_whose_records_it_still_has_fails_the_transaction(v2):
    engine = TransactionalEngine(v2).begun()
    engine.append([b"first"])
    engine.spin()
    engine.troubles["produce"].append(ErrorCode.unknown_producer_id)
    engine.append([b"bad"])
    engine.spin()
    with pytest.raises(TransactionAbortableError, match="UNKNOWN_PRODUCER_ID"):
        engine.call(Step.COMMIT)
    engine.call(Step.ABORT)
    engine.begin()
    engine.append([b"next"], receipt=SendReceipt())
    engine.call(Step.COMMIT)
    assert engine.visible(0) == [b"next"]


@both_protocols
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.topic_authorization_failed,
        ErrorCode.transaction_abortable,
        ErrorCode.invalid_txn_state,
        ErrorCode.out_of_order_sequence_number,
    ],
)
def test_a_failed_batch_fails_its_transaction_until_it_is_aborted(v2, code):
    engine = TransactionalEngine(v2).begun()
    engine.append([b"good"], 1)
    engine.spin()
    engine.troubles["produce"].append(code)
    engine.append([b"bad"])
    engine.spin()
    for step in (Step.COMMIT, Step.BEGIN, Step.PREPARE, Step.SEND_OFFSETS):
        with pytest.raises(TransactionAbortableError, match=code.name.upper()) as raised:
            engine.call(step, group=GROUP)
    assert isinstance(raised.value.__cause__, BrokerError)
    with pytest.raises(TransactionAbortableError):
        engine.manager.check_in_transaction()
    engine.call(Step.ABORT)
    engine.begin()
    engine.append([b"next"], receipt=SendReceipt())
    engine.call(Step.COMMIT)
    assert (engine.visible(0), engine.visible(1)) == ([b"next"], [])
    assert engine.memory_is_free()


def test_lost_sequences_get_a_new_epoch_after_the_abort_where_endtxn_gives_none():
    engine = TransactionalEngine(False).begun()
    engine.append([b"a"])
    engine.spin()
    engine.troubles["produce"].append(ErrorCode.topic_authorization_failed)
    engine.append([b"b"])
    engine.spin()
    engine.call(Step.ABORT)
    assert engine.apis()[-2:] == ["end_txn", "init_producer_id"]
    assert engine.manager.identity.epoch == 1


def _committing(engine: TransactionalEngine) -> Outcome:
    """EndTxn is on its way, and its response does not come."""
    engine.append([b"in time"])
    engine.troubles["end_txn"].append(Trouble.SWALLOWED)
    answer = engine.submit(Step.COMMIT)
    engine.spin()
    assert engine.apis()[-1] == "end_txn"
    return answer


@both_protocols
def test_incident_rows_lost_by_another_thread_while_end_txn_was_on_its_way_killed_the_sender(v2):
    """They came too late to be of this transaction: who lost them is told, and the commit goes on."""
    engine = TransactionalEngine(v2).begun()
    answer = _committing(engine)
    engine.manager.records_lost(KafkaTimeoutError("buffer.memory stayed full"))
    engine.spin()
    engine.await_result(answer)
    assert engine.visible() == [b"in time"]
    engine.begin()
    engine.append([b"next"], receipt=SendReceipt())
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"in time", b"next"]


@both_protocols
def test_rows_that_another_thread_appends_while_end_txn_is_on_its_way_are_refused(v2):
    engine = TransactionalEngine(v2).begun()
    answer = _committing(engine)
    late = SendReceipt()
    engine.append([b"late"], receipt=late)
    engine.await_result(answer)
    with pytest.raises(IllegalStateError, match="EndTxn is sent"):
        late.wait(0)
    assert engine.values() == engine.visible() == [b"in time"]
    assert engine.memory_is_free()


@both_protocols
def test_a_commit_that_the_coordinator_refuses_can_be_aborted(v2):
    engine = TransactionalEngine(v2).begun()
    engine.append([b"a"])
    engine.troubles["end_txn"].append(ErrorCode.transaction_abortable)
    with pytest.raises(TransactionAbortableError):
        engine.call(Step.COMMIT)
    engine.call(Step.ABORT)
    assert engine.visible() == []
    assert engine.state is State.READY


@both_protocols
def test_incident_rows_lost_just_before_the_commit_was_taken_were_noted_after_it(v2):
    """A: the sender finds no loss. B: rows are lost. C: their caller commits. A: the sender takes the commit."""
    engine = TransactionalEngine(v2).begun()

    class Losses(deque):
        def __bool__(self) -> bool:
            if engine.manager._submitted or answers:
                return len(self) > 0
            engine.manager.records_lost(KafkaTimeoutError("buffer.memory stayed full"))
            answers.append(engine.submit(Step.COMMIT))
            return False

    answers: list[Outcome] = []
    engine.manager._losses = Losses()
    engine.spin()
    with pytest.raises(TransactionAbortableError, match=r"buffer\.memory stayed full"):
        engine.await_result(answers[0])


@both_protocols
def test_when_a_batch_fails_what_waits_behind_it_is_not_sent(v2):
    engine = TransactionalEngine(v2, max_in_flight_requests_per_connection=1).begun()
    engine.append([b"first"])
    engine.spin()
    engine.troubles["produce"].append(ErrorCode.policy_violation)
    engine.append([b"x" * 10_000] * 5)
    engine.spin()
    assert engine.values() == [b"first"]
    with pytest.raises(BrokerError):
        engine.receipt.wait(0)
    assert not engine.parts.accumulator.has_incomplete


@both_protocols
def test_a_batch_expired_in_flight_is_waited_for_before_its_transaction_ends(v2):
    engine = TransactionalEngine(v2, partitions=1, nodes=1, delivery_timeout_ms=31_000, request_timeout_ms=30_900)
    engine.begun()
    engine.append([b"first"])
    engine.spin()
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
    engine.begin()
    engine.append([b"next"], receipt=SendReceipt())
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"next"]


def test_a_transaction_that_timed_out_is_aborted_and_the_producer_goes_on_with_protocol_v2():
    engine = TransactionalEngine(True).begun()
    engine.append([b"a"])
    engine.spin()
    engine.time_out()
    engine.append([b"b"])
    with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
        engine.call(Step.COMMIT)
    engine.call(Step.ABORT)
    engine.begin()
    engine.append([b"c"], receipt=SendReceipt())
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"c"]


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


@both_protocols
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
def test_refused_offsets_fail_the_transaction_or_the_producer(v2, code, error):
    engine = TransactionalEngine(v2).begun()
    engine.troubles["txn_offset_commit"].append(code)
    with pytest.raises(error, match=code.name.upper()):
        engine.call(Step.SEND_OFFSETS, offsets=OFFSETS, group=GROUP)
    with pytest.raises(error):
        engine.call(Step.COMMIT)


def test_a_topic_that_may_not_be_written_fails_the_transaction_when_it_is_added():
    engine = TransactionalEngine(False).begun()
    engine.troubles["add_partitions_to_txn"].append(ErrorCode.topic_authorization_failed)
    engine.append([b"a"])
    with pytest.raises(TransactionAbortableError, match="AddPartitionsToTxn of t-0: TOPIC_AUTHORIZATION_FAILED"):
        engine.call(Step.COMMIT)
    engine.call(Step.ABORT)
    engine.begin()
    engine.append([b"b"], receipt=SendReceipt())
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"b"]


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


@pytest.mark.parametrize("step", list(Step)[:8])
@pytest.mark.parametrize("state", [State.UNINITIALIZED, State.READY])
def test_calls_out_of_turn_are_refused_and_change_nothing(step, state):
    engine = TransactionalEngine(True)
    if state is State.READY:
        engine.call(Step.INIT)
    allowed = {
        State.UNINITIALIZED: {Step.INIT, Step.INIT_AS, Step.RESUME},
        State.READY: {Step.BEGIN, Step.INIT_AS},
    }[state]
    if step not in allowed:
        with pytest.raises(IllegalStateError, match="Cannot .*: the producer of tx "):
            engine.call(step, group=GROUP)
        assert engine.state is state


def test_what_was_appended_too_late_does_not_slip_into_the_next_transaction():
    engine = TransactionalEngine(True).begun()
    engine.call(Step.COMMIT)
    engine.append([b"late"])
    engine.begin()
    with pytest.raises(IllegalStateError):
        engine.receipt.wait(0)
    engine.append([b"a"], receipt=SendReceipt())
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]


@both_protocols
def test_a_resumed_identity_needs_no_request_before_the_first_record(v2):
    first = TransactionalEngine(v2)
    fence = first.call(Step.INIT)
    second = TransactionalEngine(v2)
    second.coordinator, second.logs = first.coordinator, first.logs
    second.call(Step.RESUME, identity=fence)
    assert second.asked == []
    second.connect()
    second.begin()
    second.append([b"a"])
    second.call(Step.COMMIT)
    assert second.visible() == [b"a"]


def test_an_open_call_is_answered_when_the_sender_ends():
    engine = TransactionalEngine(True).begun()
    engine.append([b"a"])
    engine.spin()
    engine.troubles["end_txn"].append(Trouble.SWALLOWED)
    answer = engine.submit(Step.COMMIT)
    engine.spin()
    engine.parts.sender.abort(ProducerClosedError("closed"))
    with pytest.raises(ProducerClosedError):
        answer.value()
    with pytest.raises(ProducerClosedError):
        engine.submit(Step.ABORT).value()


def test_an_abort_replaces_offsets_that_are_still_on_their_way():
    engine = TransactionalEngine(True).begun()
    engine.troubles["txn_offset_commit"].extend([ErrorCode.coordinator_load_in_progress] * 1000)
    answer = engine.submit(Step.SEND_OFFSETS, offsets=OFFSETS, group=GROUP)
    engine.spin(5_000)
    engine.call(Step.ABORT)
    with pytest.raises(TransactionAbortedError):
        answer.value()
    assert engine.offsets() == {}
