"""A broker that sends nonsense: one clear error within the timeouts, bounded memory, and a producer that lives on."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, NetworkError, UnsupportedVersionError
from spark_kafka_sink.errors import WrongProtocolError as WrongProtocol
from spark_kafka_sink.network.api_versions import SUPPORTED_VERSIONS, camel_case
from spark_kafka_sink.network.messages import decode_response, response_type
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.testing import KEPT, TestBroker
from spark_kafka_sink.testing.broker.versions import LATEST
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.findings import Outcome
from tests.faults.leaks import nothing_leaks
from tests.support.scripted_network import response_frame
from tests.support.waiting import DEADLINE_S, eventually

Change = Callable[[bytes], bytes]

MAX_BLOCK_MS = 600
REQUEST_TIMEOUT_MS = 150
DELIVERY_TIMEOUT_MS = 600

CONFIG = {
    "max.block.ms": MAX_BLOCK_MS,
    "linger.ms": 0,
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
    "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
}


def with_length(length: int) -> Change:
    return lambda frame: struct.pack(">i", length) + frame[4:]


def with_body(body: bytes) -> Change:
    """An answer to the right request that says something else."""
    return lambda frame: struct.pack(">i", 4 + len(body)) + frame[4:8] + body


def first_half(frame: bytes) -> bytes:
    return frame[: len(frame) // 2]


def for_another_request(frame: bytes) -> bytes:
    return frame[:4] + struct.pack(">i", 77) + frame[8:]


@dataclass(frozen=True)
class Nonsense:
    """What comes instead of the answer of ``api``, and the error that the record's sender gets."""

    api: str
    what: str
    change: Change
    error: type[KafkaError]
    words: str

    def __str__(self) -> str:
        return f"{self.api}: {self.what}"


HUGE_ARRAY = b"\0" + b"\xff\xff\xff\xff\x7f" + b"\0" * 100
TIMEOUT = rf"Topic t not present in metadata after {MAX_BLOCK_MS} ms.* "
EXPIRED = r"Expiring 1 record\(s\) for t-0: \d+ ms has passed since batch creation"

NONSENSE = (
    Nonsense("ApiVersions", "2 GiB announced", with_length(2**31 - 1), WrongProtocol, "a frame of 2147483647 bytes"),
    Nonsense("ApiVersions", "half a frame", first_half, KafkaTimeoutError, TIMEOUT + "No broker could be reached"),
    Nonsense("ApiVersions", "another request's answer", for_another_request, KafkaTimeoutError,
             TIMEOUT + "No broker could be reached.*responded to request 77 instead of 0"),
    Nonsense("ApiVersions", "no such fields", with_body(b"\xff" * 30), KafkaTimeoutError,
             TIMEOUT + "No broker could be reached.*gave ApiVersions a response that cannot be read"),
    Nonsense("ApiVersions", "no APIs", with_body(b"\0\0\1\0\0\0\0\0"), UnsupportedVersionError,
             "does not support Metadata"),
    Nonsense("Metadata", "half a frame", first_half, KafkaTimeoutError,
             TIMEOUT + "No broker could be reached.*did not respond to Metadata v.* within"),
    Nonsense("Metadata", "no such fields", with_body(b"\0" + b"\xff" * 50), KafkaTimeoutError,
             TIMEOUT + "No broker could be reached.*gave Metadata v.* a response that cannot be read"),
    Nonsense("Metadata", "no brokers", with_body(b"\0" + bytes(4) + b"\1\0\0\0\0\0\1\0"), KafkaTimeoutError, TIMEOUT),
    Nonsense("InitProducerId", "no producer id", with_body(b"\0" + bytes(4) + bytes(2) + b"\xff" * 10 + b"\0"),
             KafkaTimeoutError, EXPIRED),
    Nonsense("Produce", "2 GiB announced", with_length(2**31 - 1), KafkaTimeoutError,
             EXPIRED + r".*a frame of 2147483647 bytes"),
    Nonsense("Produce", "half a frame", first_half, KafkaTimeoutError, EXPIRED + r".*did not respond to Produce v"),
    Nonsense("Produce", "another request's answer", for_another_request, KafkaTimeoutError,
             EXPIRED + r".*responded to request 77 instead of"),
    Nonsense("Produce", "no such fields", with_body(b"\0\2" + b"\xff" * 20), KafkaTimeoutError,
             EXPIRED + r".*gave Produce v\d+ a response that cannot be read"),
    Nonsense("Produce", "34 billion topics", with_body(HUGE_ARRAY), KafkaTimeoutError,
             EXPIRED + r".*an array of 34359738366 elements is announced"),
    Nonsense("Produce", "null topics", with_body(b"\0\0" + bytes(4) + b"\0"), KafkaTimeoutError,
             EXPIRED + r".*an array that must not be null is null"),
    Nonsense("Produce", "no partitions", with_body(b"\0\1" + bytes(4) + b"\0"), KafkaTimeoutError,
             EXPIRED + r".*responded for other partitions than the requested ones, t-0"),
)  # fmt: skip


@pytest.mark.parametrize("nonsense", NONSENSE, ids=str)
def test_nonsense_ends_in_one_clear_error_within_the_timeouts(nonsense: Nonsense) -> None:
    with nothing_leaks(), TestBroker() as broker:
        broker.create_topic("t")
        hostile = broker.faults.mangle(nonsense.api, nonsense.change, times=KEPT)
        patient = {} if nonsense.api in ("ApiVersions", "Metadata") else {"max.block.ms": 120_000}
        with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, **CONFIG, **patient}) as producer:
            with pytest.raises(nonsense.error, match=nonsense.words) as caught:
                producer.send(ProducerRecord("t", b"x")).result(DEADLINE_S)
            assert "\n" not in str(caught.value)
            hostile.remove()
            broker.cut_connections(1)
            assert delivered_at_last(producer)
        del caught


def delivered_at_last(producer: KafkaProducer) -> bool:
    """The broker is sane again: the same producer goes on."""

    def delivers() -> bool:
        try:
            producer.send(ProducerRecord("t", b"y")).result(DEADLINE_S)
        except (KafkaTimeoutError, NetworkError, UnsupportedVersionError):
            return False
        return True

    eventually(delivers)
    return True


def changed(part: Any, path: Sequence[str], fields: Mapping[str, Any]) -> Any:
    """``path``: arrays, of whose elements the fields are changed."""
    if not path:
        return replace(part, **fields)
    return replace(part, **{path[0]: tuple(changed(each, path[1:], fields) for each in getattr(part, path[0]))})


def rewritten(api: str, *path: str, **fields: Any) -> Change:
    """The broker's own answer, in the highest version that the client knows, with these fields."""
    kind = response_type(api, SUPPORTED_VERSIONS[api].highest)

    def mangled(frame: bytes) -> bytes:
        answer = changed(decode_response(memoryview(frame)[8:], kind), path, fields)
        return response_frame(int.from_bytes(frame[4:8], "big"), answer)

    return mangled


_ADDED = ("results_by_topic_v3_and_below", "results_by_partition")


@pytest.mark.parametrize(
    ("api", "change", "said"),
    [
        ("add_partitions_to_txn", rewritten("add_partitions_to_txn", *_ADDED, partition_index=0), "lacks AddPar.* t-1"),
        ("init_producer_id", rewritten("init_producer_id", producer_id=-1), "producer_id is -1"),
        ("init_producer_id", rewritten("init_producer_id", producer_id=-5), "producer_id is -5"),
        ("init_producer_id", rewritten("init_producer_id", producer_epoch=-1), "producer_epoch is -1"),
        ("find_coordinator", rewritten("find_coordinator", "coordinators", port=70_000), "port is 70000"),
        ("find_coordinator", rewritten("find_coordinator", "coordinators", key="x"), "FindCoordinator has no response"),
        ("metadata", rewritten("metadata", "brokers", node_id=-1), "node_id is -1"),
        ("txn_offset_commit", rewritten("txn_offset_commit", topics=()), "lacks TxnOffsetCommit of in-0 for group g"),
        ("produce", rewritten("produce", "responses", "partition_responses", base_offset=-5), "has offset -5"),
        ("end_txn", rewritten("end_txn", producer_epoch=-7), "producer_epoch is -7"),
        ("end_txn", rewritten("end_txn", producer_epoch=-1), "producer_epoch is -1"),
        ("end_txn", rewritten("end_txn", producer_id=-1), "producer_id is -1"),
    ],
)  # fmt: skip
def test_incident_an_answer_that_says_less_than_was_asked_or_cannot_be_was_taken(api, change, said, caplog) -> None:
    """A partition that no AddPartitionsToTxn has confirmed is a hanging transaction on brokers before 3.6."""

    def write(producer: KafkaProducer) -> None:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({("in", 0): 1}, "g")
        for partition in (0, 1):
            producer.send(ProducerRecord("t", b"x", partition=partition))
        producer.commit_transaction()

    with caplog.at_level("DEBUG"), TestBroker(like="3.5" if api == "add_partitions_to_txn" else LATEST) as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("in")
        config = {"bootstrap.servers": broker.bootstrap_servers, **CONFIG, "transactional.id": "x", "linger.ms": 400}
        with KafkaProducer(config) as producer:
            broker.faults.mangle(camel_case(api), change, times=KEPT)
            with pytest.raises(KafkaError):
                write(producer)
            broker.faults.clear()
        assert re.search(said, caplog.text)
        assert bool(broker.requests.of("Produce")) == (api in ("produce", "end_txn"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rewritten("metadata", topics=()), "their metadata lacks topic t"),
        (rewritten("metadata", "topics", name="other"), "their metadata lacks topic t"),
        (rewritten("metadata", "topics", partitions=()), "topic t has no partitions"),
    ],
)
def test_incident_a_response_without_the_topic_that_was_asked_for_was_no_reason(change, said) -> None:
    with TestBroker() as broker:
        broker.create_topic("t")
        broker.faults.mangle("Metadata", change, times=KEPT)
        request = CheckRequest(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers}), "t")
        failed = [finding.text for finding in check(request, SystemClock()) if finding.outcome is Outcome.FAILED]
        assert re.search("lacks topic t|no partitions", failed[0])
        config = {"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 300}
        with KafkaProducer(config) as producer, pytest.raises(KafkaTimeoutError, match=rf"after 300 ms\. .*{said}"):
            producer.partitions_for("t")
