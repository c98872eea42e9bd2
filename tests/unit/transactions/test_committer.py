"""Ending prepared transactions inline: one deadline for all, an outcome for each, several connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.network.name_lookup import AddressList
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.transport import Event
from spark_kafka_sink.producer.transactions.committer import Committer, EndVerdict
from spark_kafka_sink.producer.transactions.values import PreparedTransaction
from tests.support.manual_clock import ManualClock
from tests.support.scripted_network import ScriptedTransport, SentRequest, api_versions_response
from tests.unit.transactions.transactional_engine import NO_THROTTLE, V2_RANGES

CONFIG = ProducerConfig.parse({"bootstrap.servers": "boot:9092", "request.timeout.ms": 1_000})


class Brokers(ScriptedTransport):
    """Nodes n0 and n1 share the ids by their last digit. Time passes when nothing comes. ``codes`` go by id."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(self._respond, accept_all=True)
        self.clock = clock
        self.codes: dict[str, list[ErrorCode]] = {}
        self.ended: list[tuple[str, int, int, bool]] = []
        self.initialised: list[tuple[str, int, int]] = []
        self.served: Counter[int] = Counter()
        self.silent = self.refusing = False

    def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
        self.accept_all = not self.refusing
        super().connect(connection_id, host, port, addresses)
        if self.refusing:
            self.drop(connection_id, "Connection refused")

    def poll(self, timeout_ms: float) -> list[Event]:
        events = super().poll(timeout_ms)
        if not events:
            assert timeout_ms < float("inf"), "nothing would ever wake it"
            self.clock.advance(timeout_ms)
        return events

    def _respond(self, request: SentRequest) -> Any:
        response = request.module.response
        match request.api:
            case "api_versions":
                return api_versions_response(request, V2_RANGES)
            case "find_coordinator":
                return response.FindCoordinatorResponse(
                    throttle_time=NO_THROTTLE,
                    coordinators=tuple(self._coordinator(response, key) for key in request.entity().coordinator_keys),
                )
            case "end_txn":
                return None if self.silent else self._end(request)
            case "init_producer_id":
                asked = request.entity()
                self.initialised.append((asked.transactional_id, asked.producer_id, asked.producer_epoch))
                code = self._code(asked.transactional_id)
                return response.InitProducerIdResponse(
                    throttle_time=NO_THROTTLE, error_code=code, producer_id=7, producer_epoch=3
                )
        raise AssertionError(request.api)

    def _coordinator(self, response: Any, key: str) -> Any:
        node = int(key[-1]) % 2
        return response.Coordinator(
            key=key, node_id=node, host=f"n{node}", port=9092, error_code=ErrorCode.none, error_message=None
        )

    def _code(self, name: str) -> ErrorCode:
        return self.codes[name].pop(0) if self.codes.get(name) else ErrorCode.none

    def _end(self, request: SentRequest) -> Any:
        asked = request.entity()
        self.served[request.connection_id] += 1
        self.ended.append((asked.transactional_id, request.version, asked.producer_epoch, asked.committed))
        fields = {"producer_id": 7, "producer_epoch": asked.producer_epoch + 1} if request.version >= 5 else {}
        code = self._code(asked.transactional_id)
        return request.module.response.EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code, **fields)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def brokers(clock: ManualClock) -> Brokers:
    return Brokers(clock)


@contextmanager
def open_committer(brokers: Brokers, clock: ManualClock, connections: int = 10) -> Iterator[Committer]:
    with closing(Rpc(CONFIG, clock, brokers, connections)) as rpc:
        yield Committer(rpc, CONFIG.transaction_timeout_ms)


def prepared(name: str, version: int = 5) -> PreparedTransaction:
    return PreparedTransaction(name, 7, 4, version)


def test_many_are_spread_over_the_connections_to_their_coordinator(brokers: Brokers, clock: ManualClock) -> None:
    with open_committer(brokers, clock, connections=5) as committer:
        outcomes = committer.end([(prepared(f"a{number}-0"), True) for number in range(50)], 1_000)
    assert {outcome.verdict for outcome in outcomes} == {EndVerdict.COMMITTED}
    assert sorted(brokers.served.values()) == [10] * 5


def test_one_transaction_opens_one_connection_to_its_coordinator(brokers: Brokers, clock: ManualClock) -> None:
    with open_committer(brokers, clock) as committer:
        committer.end([(prepared("a0"), True)], 1_000)
    assert list(brokers.addresses.values()) == [("boot", 9092), ("n0", 9092)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_txn_state,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.transaction_abortable,
        ErrorCode.transactional_id_authorization_failed,  # decides nothing
    ],
)
def test_one_that_is_gone_or_refused_says_so_with_the_code_and_keeps_no_other_from_its_end(
    brokers: Brokers, clock: ManualClock, code: ErrorCode
) -> None:
    brokers.codes["gone0"] = [code]
    with open_committer(brokers, clock) as committer:
        gone, ended = committer.end([(prepared("gone0"), True), (prepared("a0"), True)], 1_000)
    verdict = EndVerdict.UNDECIDED if code is ErrorCode.transactional_id_authorization_failed else EndVerdict.GONE
    assert (gone.verdict, gone.error_code, gone.identity) == (verdict, int(code), None)
    assert code.name.upper() in str(gone.error)
    assert ended.verdict is EndVerdict.COMMITTED


def test_what_passes_is_asked_again_before_the_deadline(brokers: Brokers, clock: ManualClock) -> None:
    brokers.codes["a0"] = [ErrorCode.concurrent_transactions] * 3 + [ErrorCode.not_coordinator]
    with open_committer(brokers, clock) as committer:
        (outcome,) = committer.end([(prepared("a0"), True)], 5_000)
    assert outcome.verdict is EndVerdict.COMMITTED
    assert len(brokers.ended) == 5


def test_the_deadline_ends_the_waiting_and_says_what_for(brokers: Brokers, clock: ManualClock) -> None:
    """Incident: "EndTxn for … has no response after -… ms", as the calls before it had taken all the time."""
    brokers.codes["a0"] = [ErrorCode.coordinator_load_in_progress] * 1_000
    with open_committer(brokers, clock) as committer:
        (outcome,) = committer.end([(prepared("a0"), True)], -1_234)
    assert "no response after 0 ms" in str(outcome.error)
    with open_committer(brokers, clock) as committer:
        (outcome,) = committer.end([(prepared("a0"), True)], 3_000)
    assert outcome.verdict is EndVerdict.UNDECIDED
    assert isinstance(outcome.error, KafkaTimeoutError)
    assert "no response after 3000 ms" in str(outcome.error)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(outcome.error)
    assert clock.now() == pytest.approx(3_000)


def test_brokers_that_never_answer_cost_the_deadline_and_no_more(brokers: Brokers, clock: ManualClock) -> None:
    brokers.silent = True
    with open_committer(brokers, clock) as committer:
        outcomes = committer.end([(prepared("a0"), True), (prepared("a1"), True)], 2_500)
    assert {outcome.verdict for outcome in outcomes} == {EndVerdict.UNDECIDED}
    assert "did not respond to EndTxn v5 within 1000 ms" in str(outcomes[0].error)
    assert clock.now() == pytest.approx(2_500)


def test_unreachable_brokers_are_named(brokers: Brokers, clock: ManualClock) -> None:
    brokers.refusing = True
    with open_committer(brokers, clock) as committer:
        (outcome,) = committer.end([(prepared("a0"), True)], 2_000)
    assert outcome.verdict is EndVerdict.UNDECIDED
    assert "(boot:9092) could not be established: Connection refused" in str(outcome.error)
    assert len(brokers.addresses) < 20, "attempts back off"


def test_an_abort_of_transactions_version_1_fences_by_the_identity_and_sends_no_end(
    brokers: Brokers, clock: ManualClock
) -> None:
    """EndTxn would leave the epoch as it is, and InitProducerId after it would write no markers."""
    brokers.codes["a0"] = [ErrorCode.concurrent_transactions] * 2 + [ErrorCode.producer_fenced]
    brokers.codes["gone0"] = [ErrorCode.producer_fenced]
    brokers.codes["completing0"] = [ErrorCode.concurrent_transactions]
    brokers.codes["lost0"] = [ErrorCode.transactional_id_authorization_failed]
    names = ["a0", "gone0", "empty0", "completing0", "lost0"]
    with open_committer(brokers, clock) as committer:
        outcomes = committer.abort([prepared(name, 3) for name in names], 1_000)
    assert [outcome.verdict for outcome in outcomes] == [
        EndVerdict.ABORTED,
        EndVerdict.GONE,
        EndVerdict.GONE,
        EndVerdict.GONE,
        EndVerdict.UNDECIDED,
    ]
    assert brokers.ended == []
    assert set(brokers.initialised) == {(name, 7, 4) for name in names}


def test_an_abort_of_transactions_version_2_is_an_end(brokers: Brokers, clock: ManualClock) -> None:
    with open_committer(brokers, clock) as committer:
        (outcome,) = committer.abort([prepared("a0")], 1_000)
    assert outcome.verdict is EndVerdict.ABORTED
    assert (brokers.ended, brokers.initialised) == ([("a0", 5, 4, False)], [])
