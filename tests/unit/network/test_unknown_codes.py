"""What this client does not know: an error code is UNKNOWN_SERVER_ERROR of its one item, a tagged field is left out."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError, KafkaTimeoutError
from spark_kafka_sink.network import error_table
from spark_kafka_sink.network.api_versions import SUPPORTED_VERSIONS
from spark_kafka_sink.network.messages import decode_response, response_type
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.transaction_manager import Step
from tests.unit.network.response_bytes import Shape
from tests.unit.scripted_engine import Engine
from tests.unit.transactions.transactional_engine import TransactionalEngine

UNKNOWN = SimpleNamespace(value=200)
"""What kio's writer needs of an error code."""

RESPONSES = {api: range(spoken.lowest, spoken.highest + 1) for api, spoken in SUPPORTED_VERSIONS.items()}


@pytest.mark.parametrize(("api", "version"), [(api, each) for api, versions in RESPONSES.items() for each in versions])
def test_a_response_of_any_api_is_read_with_unknown_codes_in_it(api, version):
    kind = response_type(api, version)
    none, unknown, expected = (
        decode_response(Shape(b"name", 2, code=code).response(kind), kind) for code in (0, UNKNOWN.value, -1)
    )
    assert unknown == expected != none


@pytest.mark.parametrize("api", RESPONSES)
def test_incident_a_tagged_field_that_a_later_broker_adds_made_its_responses_unreadable(api):
    """KIP-482: brokers may add tagged fields to any version, and clients pass over those that they do not know."""
    kinds = [response_type(api, version) for version in RESPONSES[api]]
    for kind in (kind for kind in kinds if kind.__flexible__):
        plain, tagged = (Shape(b"name", 2, tags=tags).response(kind) for tags in (0, 2))
        assert len(tagged) > len(plain)
        assert decode_response(tagged, kind) == decode_response(plain, kind)


def test_a_known_tagged_field_is_read_beside_an_unknown_one():
    kind = response_type("api_versions", 3)
    plain = Shape(b"name", 2).response(kind)
    known = Shape(b"name", 2, counts={("supported_features",): 3}).response(kind)
    assert known.startswith(plain[:-1] + b"\1")
    both = plain[:-1] + b"\2" + known[len(plain) :] + bytes([100, 0])
    assert len(decode_response(both, kind).supported_features) == 3
    assert decode_response(both, kind) == decode_response(known, kind)


def test_a_response_full_of_unknown_codes_is_ten_warnings_at_most(caplog, monkeypatch):
    monkeypatch.setattr(error_table, "_unknown_codes", set())
    kind = response_type("add_partitions_to_txn", 3)
    decode_response(Shape(text=b"t", elements=30, code=2000, codes=30).response(kind), kind)
    assert len(caplog.messages) == error_table.MAX_WARNINGS
    assert caplog.messages[0] == "A broker sent error code 2000, which this client does not know"


def test_incident_one_topic_with_an_unknown_code_made_all_metadata_unreadable(monkeypatch, caplog):
    engine = Engine()
    respond = engine._metadata

    def metadata(request):
        response = respond(request)
        topics = tuple(
            dataclasses.replace(topic, error_code=UNKNOWN, partitions=()) if topic.name == "strange" else topic
            for topic in response.topics
        )
        return dataclasses.replace(response, topics=topics)

    monkeypatch.setattr(engine, "_metadata", metadata)
    with pytest.raises(KafkaTimeoutError, match=r"respond with error -1 \(UNKNOWN_SERVER_ERROR\)"):
        engine.wait_for_topic("strange", 500, lambda: engine.spin(100))
    engine.spin(1_000)
    engine.connect()
    engine.deliver([b"a"])
    assert engine.values() == [b"a"]


@pytest.mark.parametrize("idempotent", [True, False])
def test_incident_a_batch_with_an_unknown_code_was_sent_seven_times_on_new_connections(idempotent):
    engine = Engine(partitions=2, enable_idempotence=idempotent).connect()
    for number in (0, 1):
        engine.append([b"first"], number, SendReceipt())
    engine.settle()
    connections, sent = len(engine.transport.addresses), len(engine.requests)
    refused, append = SendReceipt(), engine._append

    def strange(response, number, data, step):
        result = append(response, number, data, step)
        return dataclasses.replace(result, error_code=UNKNOWN) if number == 0 else result

    engine._append = strange
    engine.append([b"a"], 0, refused)
    engine.deliver([b"b"], 1, accepted := SendReceipt())
    with pytest.raises(BrokerError, match="t-0: UNKNOWN_SERVER_ERROR; the broker's error code is 200"):
        refused.wait(0)
    accepted.wait(0)
    assert engine.values(0) == [b"first", b"a"], "one copy"
    assert engine.values(1) == [b"first", b"b"]
    assert (len(engine.transport.addresses), len(engine.requests)) == (connections, sent + 1)
    assert engine.memory_is_free()


@pytest.mark.parametrize("api", ["find_coordinator", "init_producer_id", "end_txn"])
def test_a_coordinators_unknown_code_is_told_at_once(api):
    engine = TransactionalEngine(True)
    if api == "end_txn":
        engine.begun()
        engine.append([b"a"])
    respond = getattr(engine, f"_respond_{api}")

    def strange(request, _code):
        response = respond(request, None)
        if api != "find_coordinator":
            return dataclasses.replace(response, error_code=UNKNOWN)
        unknown = [dataclasses.replace(each, error_code=UNKNOWN) for each in response.coordinators]
        return dataclasses.replace(response, coordinators=tuple(unknown))

    setattr(engine, f"_respond_{api}", strange)
    with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
        engine.call(Step.COMMIT if api == "end_txn" else Step.INIT)
    assert engine.clock.now() < 5_000


@pytest.mark.parametrize(("api", "tells"), [("end_txn", True), ("produce", True), ("create_topics", False)])
def test_a_version_that_an_api_lacks_is_explained_by_transactions_only_where_they_are_written_and_ended(api, tells):
    error = error_table.broker_error(ErrorCode.unsupported_version, "t", api=api)
    assert ("when transaction.version was lowered" in str(error)) is tells
