"""What a task asks the core for besides rows: requests of its own, on the producer's connections."""

import threading
from contextlib import closing

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, ProducerClosedError
from spark_kafka_sink.network.api_versions import METADATA
from spark_kafka_sink.network.calls import Call
from spark_kafka_sink.network.metadata_api import MetadataEntity
from spark_kafka_sink.network.topics import NewTopic, create_topic, topic_metadata
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S, eventually

PATIENT = {"request.timeout.ms": 3_600_000, "delivery.timeout.ms": 7_200_000}
"""Longer than a test may take."""

broker = broker_with("small", config={"auto.create.topics.enable": False})


def opened(broker, **options):
    return closing(ProducerCore.open(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers, **options})))


def asked(broker, api):
    return sum(seen.api == api for seen in broker.requests)


def soon(made, ms=60_000):
    return made.calls.now() + ms


def test_a_caller_that_waits_learns_of_the_close(broker):
    broker.faults.lose_answer("Metadata", times=KEPT)
    outcomes = []

    def wait(made):
        try:
            topic_metadata(made.calls, ["small"], soon(made, 3_600_000))
        except KafkaError as error:
            outcomes.append(error)

    with opened(broker, **PATIENT) as made:
        waiting = threading.Thread(target=wait, args=(made,))
        waiting.start()
        eventually(lambda: asked(broker, "Metadata"))
    waiting.join(DEADLINE_S)
    assert [type(each) for each in outcomes] == [ProducerClosedError]


def test_a_call_that_its_caller_gave_up_is_not_sent_again(broker):
    with opened(broker, **{"retry.backoff.ms": 1, "retry.backoff.max.ms": 1}) as made:
        broker.kill(broker.node_ids[0])
        # Whether the call still had a broker when its time was up depends on when the refused connections were noticed.
        with pytest.raises(
            KafkaTimeoutError, match="No broker of .* has responded: |CreateTopics has no response after"
        ):
            create_topic(made.calls, NewTopic("late"), soon(made, 300))
        eventually(lambda: not made.sender.calls.busy)
        broker.start(broker.node_ids[0])
        assert made.partition_count("small") == 1
        assert "late" not in broker.topics


def test_a_call_that_is_given_up_before_the_sender_has_seen_it_is_never_sent(broker):
    with opened(broker) as made:
        calls = made.calls
        call = Call("metadata", METADATA, None, MetadataEntity(["small"], False), lambda _: ())
        call.stopped = True
        calls.start(call, None)
        made.sender_thread.wakeup()
        eventually(lambda: not calls.busy)
        assert asked(broker, "Metadata") == 0 or not call.in_flight
        assert call.began == float("inf")
