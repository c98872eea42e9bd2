"""What the sender counts, seen through ``KafkaProducer.metrics``'s source."""

import pytest
from kio.schema.errors import ErrorCode

from tests.unit.scripted_engine import Engine, Step


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
