"""What a task asks the engine for besides rows: limits and requests of its own, on the producer's connections."""

import threading
from contextlib import closing

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, ProducerClosedError
from spark_kafka_sink.network.api_versions import METADATA
from spark_kafka_sink.network.calls import Call
from spark_kafka_sink.network.metadata_api import MetadataEntity
from spark_kafka_sink.network.topics import NewTopic, create_topic, topic_metadata
from spark_kafka_sink.producer.engine import ProducerEngine
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.waiting import DEADLINE_S, eventually

PATIENT = {"request.timeout.ms": 3_600_000, "delivery.timeout.ms": 7_200_000}
"""Longer than a test may take."""


@pytest.fixture
def broker():
    with TestBroker(config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("small", configs={"max.message.bytes": 2_000})
        broker.create_topic("large", configs={"max.message.bytes": 3_000_000})
        yield broker


def engine(broker, **options):
    return closing(ProducerEngine(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers, **options})))


def asked(broker, api="DescribeConfigs"):
    return sum(seen.api == api for seen in broker.requests)


def soon(made, ms=60_000):
    return made.calls.now() + ms


def test_all_requests_of_a_task_are_its_producers(broker):
    with engine(broker, **{"client.id": "task"}) as made:
        create_topic(made.calls, NewTopic("new", partitions=3), soon(made))
        assert made.topics.partition_count("new") == 3
        assert made.topics.max_message_bytes(["small", "large"]) == {"small": 2_000, "large": 3_000_000}
        assert {seen.client_id for seen in broker.requests} == {"task"}


def test_a_limit_is_asked_for_once_and_again_when_it_is_doubted(broker):
    with engine(broker) as made:
        for _ in range(3):
            assert made.topics.max_message_bytes(["small"]) == {"small": 2_000}
        assert asked(broker) == 1
        broker.set_topic_configs("small", {"max.message.bytes": 1_000})
        made.topics.doubt_limit("small")
        assert made.topics.max_message_bytes(["small"]) == {"small": 2_000}, "asked for a moment ago"
        made.parts.accumulator.topic_limits.doubt("small", 0.0)
        assert made.topics.max_message_bytes(["small"]) == {"small": 1_000}
        assert asked(broker) == 2


def test_limits_that_are_old_at_once_are_asked_for_each_time_and_no_caller_waits_for_long(broker):
    with engine(broker, **PATIENT, **{"metadata.max.age.ms": 0}) as made:  # a wait of request.timeout.ms would not end
        for _ in range(3):
            assert made.topics.max_message_bytes(["small"]) == {"small": 2_000}
        assert asked(broker) == 3


def test_a_limit_that_no_broker_tells_is_unknown_with_the_reason(broker):
    broker.faults.lose_answer("DescribeConfigs", times=KEPT)
    with engine(broker, **{"request.timeout.ms": 300, "delivery.timeout.ms": 2_000, "linger.ms": 0}) as made:
        (outcome,) = made.topics.max_message_bytes(["small"]).values()
        assert isinstance(outcome, KafkaTimeoutError)
        assert str(outcome).startswith("DescribeConfigs has no response after 300 ms")


@pytest.mark.parametrize("use", ["limits", "call"])
def test_a_caller_that_waits_learns_of_the_close(broker, use):
    broker.faults.lose_answer("DescribeConfigs", times=KEPT)
    broker.faults.lose_answer("Metadata", times=KEPT)
    outcomes = []

    def wait(made):
        try:
            if use == "limits":
                outcomes.extend(made.topics.max_message_bytes(["small"]).values())
            else:
                topic_metadata(made.calls, ["small"], soon(made, 3_600_000))
        except KafkaError as error:
            outcomes.append(error)

    with engine(broker, **PATIENT) as made:
        waiting = threading.Thread(target=wait, args=(made,))
        waiting.start()
        eventually(lambda: asked(broker, "DescribeConfigs" if use == "limits" else "Metadata"))
    waiting.join(DEADLINE_S)
    assert [type(each) for each in outcomes] == [ProducerClosedError]


def test_a_call_that_its_caller_gave_up_is_not_sent_again(broker):
    with engine(broker, **{"retry.backoff.ms": 1, "retry.backoff.max.ms": 1}) as made:
        broker.kill(broker.node_ids[0])
        # Whether the call still had a broker when its time was up depends on when the refused connections were noticed.
        with pytest.raises(
            KafkaTimeoutError, match="No broker of .* has responded: |CreateTopics has no response after"
        ):
            create_topic(made.calls, NewTopic("late"), soon(made, 300))
        eventually(lambda: not made.parts.caller_calls.busy)
        broker.start(broker.node_ids[0])
        assert made.topics.partition_count("small") == 1
        assert "late" not in broker.topics


def test_a_call_that_is_given_up_before_the_sender_has_seen_it_is_never_sent(broker):
    with engine(broker) as made:
        calls = made.parts.caller_calls
        call = Call("metadata", METADATA, None, MetadataEntity(["small"], False), lambda _: ())
        call.stopped = True
        calls._started.append(call)
        calls.busy = True
        made.parts.sender_thread.wakeup()
        eventually(lambda: not calls.busy)
        assert asked(broker, "Metadata") == 0 or not call.in_flight
        assert call.began == float("inf")
