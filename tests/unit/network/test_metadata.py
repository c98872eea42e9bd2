from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicInfo, TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaTimeoutError, NetworkError
from spark_kafka_sink.network.metadata import Metadata
from tests.support.waiting import DEADLINE_S
from tests.unit.scripted_engine import ScriptedLoop

B1, B2 = Node(1, "b1", 9092), Node(2, "b2", 9092)


def metadata(client=None, **config) -> Metadata:
    parsed = ProducerConfig.parse({"bootstrap.servers": "boot:9092,boot2:9093"})
    client = client or SimpleNamespace(why_waiting=lambda _node, _now: None)
    return Metadata(replace(parsed, **config), Random(5), client, SystemClock(), None)


def topic(name="t", leaders=(1,), epochs=None, error=0, topic_id=None) -> TopicInfo:
    return TopicInfo(name, leaders, epochs or (0,) * len(leaders), topic_id=topic_id, error=error)


def answer(*topics: TopicInfo, nodes=(B1, B2)) -> ClusterSnapshot:
    return ClusterSnapshot(nodes={node.id: node for node in nodes}, topics={each.name: each for each in topics})


def known(*topics: TopicInfo, now: float = 0.0, **config) -> Metadata:
    """Metadata that has been told of ``topics``, which are in use."""
    each = metadata(**config)
    each.clock = SystemClockAt(now)
    for info in topics:
        with pytest.raises(KafkaTimeoutError):
            each.wait_for_topics({info.name: None}, 0)
    respond(each, *topics, now=now)
    return each


class SystemClockAt:
    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def epoch_ms(self) -> int:
        return 0


def request(each: Metadata, now: float = 0.0) -> tuple[str, ...]:
    """The topics of the next request, which is sent."""
    each.next_update(now)
    return each.request_for(now)


def respond(each: Metadata, *topics: TopicInfo, now: float = 0.0, nodes=(B1, B2)) -> None:
    request(each, now)
    each.updated(answer(*topics, nodes=nodes), now)


class Waiter(threading.Thread):
    """``wait_for_topics`` on a thread of its own; ``result`` is the snapshot or the error."""

    def __init__(self, each: Metadata, name: str = "t", partition: int | None = None, max_wait_ms: float = 10_000):
        super().__init__(daemon=True)
        self.asked = threading.Semaphore(0)
        self.result: object = None
        each.clock = SystemClock()
        self.metadata = each
        each.waiters.sender = SimpleNamespace(wakeup=self.asked.release, obstacle=lambda: None)
        self._wait: Callable[[], object] = lambda: each.wait_for_topics({name: partition}, max_wait_ms)
        self.start()
        assert self.asked.acquire(timeout=DEADLINE_S)

    def run(self) -> None:
        try:
            self.result = self._wait()
        except Exception as error:
            self.result = error

    def ended(self) -> object:
        self.metadata.next_update(0)
        self.join(DEADLINE_S)
        assert not self.is_alive()
        return self.result


@pytest.mark.parametrize(
    ("error", "words"),
    [(3, "do not have topic t and did not create it"), (5, "LEADER_NOT_AVAILABLE"), (87, "respond with error 87")],
)
def test_the_time_out_says_what_the_brokers_answered(error, words):
    each = known(topic(leaders=(), error=error))
    with pytest.raises(KafkaTimeoutError, match=words):
        each.wait_for_topics({"t": None}, 0)


@pytest.mark.parametrize(
    ("error", "name", "text"),
    [
        (17, "INVALID_TOPIC_EXCEPTION", "Invalid topics: [t]"),
        (
            29,
            "TOPIC_AUTHORIZATION_FAILED",
            "Not authorized to access topics: [t]; the principal needs WRITE and DESCRIBE on it",
        ),
    ],
)
def test_a_forbidden_or_invalid_topic_is_told_at_once(error, name, text):
    each = metadata()
    waiter = Waiter(each, max_wait_ms=60_000)
    respond(each, topic(leaders=(), error=error))
    raised = waiter.ended()
    assert isinstance(raised, BrokerError)
    assert (raised.code, raised.name, str(raised)) == (error, name, text)


def test_a_refused_topic_was_the_reason_of_every_later_wait():
    each = metadata()
    refused = Waiter(each, max_wait_ms=60_000)
    respond(each, topic(leaders=(), error=17))
    refused.ended()
    waiter = Waiter(each, "other", max_wait_ms=60_000)
    each.request_update()
    each.next_update(0)
    assert each.why_waiting(each.waiting_for, 0, 0) is None
    assert request(each, 0) == ("other",)
    each.updated(answer(topic("other")), 0)
    waiter.ended()


def test_incident_a_second_wait_was_counted_from_the_first():
    """A micro-batch whose rows waited for a moment warned of 10 s, the time since an earlier one's wait."""
    each = metadata()
    waiter = Waiter(each)
    request(each)
    assert each.waiting_since is not None
    each.updated(answer(topic()), 0)
    waiter.ended()
    assert each.waiting_since is None


def test_topics_that_are_waited_for_together_are_asked_for_together_and_known_ones_not_again():
    each = known(topic("a"))
    requests = []

    def respond():
        requests.append(set(request(each, 1.0)))
        each.updated(answer(topic("b"), topic("c")), 2.0)
        each.next_update(2.0)

    wanted = {"a": 0, "b": None, "c": 0}
    each.waiters.sender = ScriptedLoop(each.clock, respond)
    snapshot = each.wait_for_topics(wanted, 1000)
    assert requests == [{"b", "c"}]
    assert set(snapshot.topics) == {"a", "b", "c"}
    assert each.wait_for_topics(wanted, 0) is snapshot
    assert len(requests) == 1


def test_a_new_topic_is_asked_for_alone_and_at_once():
    each = known(topic("old"))
    waiter = Waiter(each, "new")
    assert each.next_update(1) == 1
    assert request(each, 1) == ("new",)
    each.updated(answer(topic("new")), 1)
    waiter.ended()
    assert set(each.snapshot.topics) == {"old", "new"}


def test_a_new_topic_does_not_hurry_a_cluster_in_trouble():
    each = known(topic("old"))
    each.request_update()
    request(each, 200)
    each.failed(NetworkError("gone"), 200)
    waiter = Waiter(each, "new")
    assert each.next_update(200) >= 280
    assert set(request(each, 400)) == {"old", "new"}
    each.updated(answer(topic("new")), 400)
    waiter.ended()


def test_a_topic_added_while_an_update_is_in_flight_is_asked_for_next():
    each = known(topic("old"))
    each.request_update()
    request(each, 200)
    waiter = Waiter(each, "new")
    assert each.next_update(200) == math.inf
    each.updated(answer(topic("old")), 200)
    assert each.next_update(200) == 200
    assert request(each, 200) == ("new",)
    each.updated(answer(topic("new")), 200)
    waiter.ended()


def test_hearing_the_same_again_and_again_slows_the_asking_down():
    each = known(topic())
    now, delays = 0.0, []
    for _ in range(6):
        each.request_update()
        due = each.next_update(now)
        delays.append(due - now)
        now = due
        respond(each, topic(), now=now)
    for delay, expected in zip(delays, (100, 200, 400, 800, 1000, 1000), strict=True):
        assert 0.8 * expected <= delay <= min(1.2 * expected, 1000)
    respond(each, topic(leaders=(2,), epochs=(1,)), now=now)
    each.request_update()
    assert each.next_update(now) - now <= 120


def test_topics_that_nobody_uses_are_forgotten():
    each = known(topic("old"), topic("new"), metadata_max_idle_ms=1000)
    each.note_use("new", 900)
    each.request_update()
    assert request(each, 1000) == ("new",)
    each.updated(answer(topic("new")), 1000)
    assert set(each.snapshot.topics) == {"new"}


def test_a_leader_of_an_older_epoch_does_not_replace_a_newer_one():
    each = known(topic(leaders=(1, 1), epochs=(5, 5)))
    respond(each, topic(leaders=(2, 2, 2), epochs=(4, 6, 0)))
    assert each.snapshot.topics["t"].leaders == (1, 2, 2)
    assert each.snapshot.topics["t"].leader_epochs == (5, 6, 0)
    each.updated(answer(topic(leaders=(2, 2, 2), epochs=(4, 6, 0)), nodes=(B2,)), 2)
    assert each.snapshot.topics["t"].leaders == (2, 2, 2), "the leader of the newer epoch is gone"


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, {"epochs": (-1,)}), (UUID(int=1), {"epochs": (0,), "topic_id": UUID(int=2)})],
    ids=["a broker that gives no epochs", "a topic that was created anew"],
)
def test_a_leader_whose_epoch_cannot_be_compared_is_believed(before, after):
    each = known(topic(epochs=(5,), topic_id=before))
    respond(each, topic(leaders=(2,), **after))
    assert each.snapshot.topics["t"].leaders == (2,)


def test_incident_an_older_broker_without_topic_ids_brought_a_stale_leader_back():
    """In a cluster that was being upgraded; its epoch was not looked at, as the topic seemed to be another one."""
    each = known(topic(leaders=(1,), epochs=(5,), topic_id=UUID(int=1)))
    respond(each, topic(leaders=(2,), epochs=(4,)))
    assert each.snapshot.leader(TopicPartition("t", 0)) == 1


def test_a_cluster_made_anew_starts_over():
    each = known(topic(epochs=(5,)), topic("gone"))
    request(each, 1)
    each.updated(replace(answer(topic(leaders=(2,), epochs=(0,))), cluster_id="new"), 1)
    assert each.snapshot.topics["t"].leaders == (1,), "before, the brokers did not tell their cluster's id"
    each.updated(replace(answer(topic(leaders=(2,), epochs=(0,))), cluster_id="newer"), 2)
    assert each.snapshot.topics["t"].leaders == (2,)
    assert each.snapshot.topics.keys() == {"t"}


def test_a_leader_named_in_passing_counts_when_its_epoch_is_newer():
    each = known(topic(leaders=(1, 1), epochs=(5, 5)))
    b3 = Node(3, "b3", 9092)
    before = each.snapshot
    each.update_leader(TopicPartition("t", 1), b3, 5)
    each.update_leader(TopicPartition("t", 2), b3, 9)
    each.update_leader(TopicPartition("u", 0), b3, 9)
    assert each.snapshot is before
    each.update_leader(TopicPartition("t", 1), b3, 6)
    assert each.snapshot.leader(TopicPartition("t", 1)) == 3
    assert each.snapshot.leader(TopicPartition("t", 0)) == 1
    assert each.snapshot.generation == before.generation + 1
    assert before.topics["t"].leaders == (1, 1)


def test_asks_the_bootstrap_servers_again_when_every_known_broker_failed():
    each = known(topic())
    each.note_connection_error(B1, NetworkError("refused"), 10)
    assert each.candidates(10) == (B1, B2)
    each.note_connection_error(B2, NetworkError("refused"), 20)
    assert each.candidates(20) == each.bootstrap_nodes
    respond(each, topic(), now=30, nodes=(B1,))
    assert each.candidates(30) == (B1,)


def test_asks_the_bootstrap_servers_again_after_the_trigger_time():
    each = known(topic())
    each.note_connection_error(B1, NetworkError("refused"), 10)
    each.note_connection_error(B1, NetworkError("refused"), 5000)
    assert each.candidates(300_009) == (B1, B2)
    assert each.candidates(300_010) == each.bootstrap_nodes


def test_never_goes_back_to_the_bootstrap_servers_when_recovery_is_off():
    each = known(topic(), metadata_recovery_strategy="none")
    each.note_connection_error(B1, NetworkError("refused"), 0)
    each.note_connection_error(B2, NetworkError("refused"), 0)
    each.rebootstrap()
    assert each.candidates(10**9) == (B1, B2)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_incident_an_error_of_a_topic_in_the_metadata_left_no_trace_in_the_log(caplog):
    each = known(topic(leaders=(), error=29), topic("u"))
    for _ in range(3):
        respond(each, topic(leaders=(), error=29), topic("u"))
    assert warnings(caplog) == [
        "The brokers' metadata has errors for these topics: TOPIC_AUTHORIZATION_FAILED for topic t"
    ]
    respond(each, topic(), topic("u"))
    respond(each, topic(leaders=(), error=3), topic("u"))
    assert warnings(caplog)[1:] == [
        "The brokers' metadata has errors for these topics: UNKNOWN_TOPIC_OR_PARTITION for topic t"
    ]


def test_incident_each_task_warned_of_a_topic_that_was_just_being_created(caplog):
    each = known(topic(leaders=(), error=3))
    respond(each, topic(leaders=(), error=5))
    respond(each, topic())
    assert warnings(caplog) == []


def test_partitions_that_lose_their_leader_are_warned_about_when_they_do(caplog):
    each = known(topic(leaders=(1, 1, 2)))
    respond(each, topic(leaders=(-1, 1, -1)))
    respond(each, topic(leaders=(-1, 1, -1)))
    respond(each, topic(leaders=(-1, -1, 2)))
    respond(each, topic(leaders=(1, 2, 1)))
    assert warnings(caplog) == ["Partitions without a leader: t-0, t-2", "Partitions without a leader: t-1"]


def answered(turns, each: Metadata, error: ErrorCode) -> float:
    """A broker responds with this error for all of its metadata. Returns when to ask again."""
    for _ in range(2):
        turns.turn(200)
        each.maybe_update(turns.now)
        turns.turn()
    brokers = [{"node_id": 1, "host": "b1", "port": 9092}]
    response = turns.transport.requests[0].response(brokers=brokers, cluster_id="c", controller_id=1, error_code=error)
    turns.respond(response)
    return each.maybe_update(turns.now) - turns.now


def test_an_error_of_all_metadata_counts_as_no_response_and_may_send_the_client_back_to_bootstrap(turns):
    each = metadata(turns.client)
    assert 80 <= answered(turns, each, ErrorCode.unknown_server_error) <= 120
    assert each.snapshot.generation == 0
    answered(turns, each, ErrorCode.none)
    assert each.candidates(turns.now) == (Node(1, "b1", 9092),)
    each.request_update()
    answered(turns, each, ErrorCode.rebootstrap_required)
    assert each.candidates(turns.now) == each.bootstrap_nodes
