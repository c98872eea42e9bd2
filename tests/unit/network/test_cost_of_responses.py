"""What a hostile response costs: at most twice the CPU per MiB of an honest one of its API, which is never refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.messages import decode_response, response_type
from spark_kafka_sink.network.response_check import MAX_TAGGED_FIELDS, check_response
from spark_kafka_sink.producer.produce_api import read_response
from tests.support.waiting import cpu_ratio
from tests.unit.network.response_bytes import Path, Shape, arrays_of, compact
from tests.unit.network.test_unknown_codes import RESPONSES

SIZE = 128 * 1024
MOST = 2.0
ATTEMPTS = 5
"""A measurement is repeated, not its bound widened."""

UNKNOWN_CODE, DIFFERENT_CODES = 200, 100

ARRAYS: dict[str, Path] = {
    "api_versions": ("api_keys",),
    "sasl_handshake": ("mechanisms",),
    "metadata": ("topics", "partitions"),
    "produce": ("responses", "partition_responses"),
    "find_coordinator": ("coordinators",),
    "add_partitions_to_txn": ("results_by_topic_v3_and_below", "results_by_partition"),
    "txn_offset_commit": ("topics", "partitions"),
    "describe_configs": ("results", "configs"),
    "create_topics": ("topics",),
    "delete_topics": ("responses",),
    "list_transactions": ("transaction_states",),
    "describe_transactions": ("transaction_states",),
    "describe_cluster": ("brokers",),
    "list_offsets": ("topics",),
    "fetch": ("responses",),
}
"""The array that makes an honest response large. The other APIs have none."""

VERSIONS = [
    *((api, versions[-1]) for api, versions in RESPONSES.items()),
    *(pytest.param(api, versions[0], marks=pytest.mark.slow) for api, versions in RESPONSES.items() if versions[1:]),
]


def header_size(kind: Any) -> int:
    return int(kind.__header_schema__.__flexible__)


def honest(api: str, kind: Any) -> bytes:
    """A response of about ``SIZE`` bytes, with names of about eight characters, or a short one without arrays."""
    array = ARRAYS.get(api)
    if array is None or array[0] not in {path[0] for path, _ in arrays_of(kind)}:
        return Shape(b"name-").response(kind)
    shape = lambda count: Shape(b"name-", 1, {array: count}).response(kind)  # noqa: E731
    return shape(SIZE * 100 // (len(shape(100)) - len(shape(0))))


def hostile(kind: Any) -> Iterator[tuple[str, bytes]]:
    """For each array: as many of its smallest elements as fit, and as many as are accepted; plain, with codes, tags."""
    yield "tagged fields", Shape(tags=SIZE // 2).response(kind, SIZE)
    yield "tagged fields that are not too many", Shape(tags=MAX_TAGGED_FIELDS).response(kind, SIZE)
    variants: dict[str, dict[str, int]] = {"smallest": {}, "codes": {"code": UNKNOWN_CODE, "codes": DIFFERENT_CODES}}
    if kind.__flexible__:
        variants["tags"] = {"tags": MAX_TAGGED_FIELDS - 3}
    for path, _ in arrays_of(kind):
        above = {path[:depth]: 1 for depth in range(1, len(path))}
        for name, variant in variants.items():

            def response(count: int, path: Path = path, above: Any = above, variant: Any = variant) -> bytes:
                return Shape(counts={**above, path: count}, **variant).response(kind)

            first, second = len(response(100)), len(response(200))
            fitting = SIZE * 100 // (second - first)
            label = f"{name} of {'.'.join(path)}"
            yield f"{label}, as many as fit", response(fitting).ljust(SIZE, b"\0")
            accepted = most(fitting, lambda count, make=response: is_accepted(make(count), kind))
            yield f"{label}, as many as are accepted", response(accepted).ljust(SIZE, b"\0")


def is_accepted(data: bytes, kind: Any) -> bool:
    try:
        check_response(data.ljust(SIZE, b"\0"), header_size(kind), kind)
    except ValueError:
        return False
    return True


def most(highest: int, holds: Callable[[int], bool]) -> int:
    lowest = 0
    while highest - lowest > SIZE // 1000:
        middle = (lowest + highest) // 2
        lowest, highest = (middle, highest) if holds(middle) else (lowest, middle)
    return lowest


def ratio_per_byte(read: Callable[[bytes], object], data: bytes, beside: bytes) -> float:
    def tried(each: bytes) -> None:
        with suppress(NetworkError):
            read(each)

    times = max(1, SIZE // 8 // len(beside))

    def many() -> None:
        for _ in range(times):
            tried(beside)

    best = float("inf")
    for _ in range(ATTEMPTS):
        best = min(best, cpu_ratio(lambda: tried(data), many, 2) * len(beside) * times / len(data))
        if best <= MOST:
            break
    return best


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_hostile_response_costs_at_most_twice_the_cpu_of_an_honest_one(api, version):
    kind = response_type(api, version)
    beside = honest(api, kind)
    decode_response(beside, kind)

    def read(each: bytes) -> object:
        return decode_response(each, kind)

    ratios = {what: ratio_per_byte(read, data, beside) for what, data in hostile(kind)}
    assert {what: ratio for what, ratio in ratios.items() if ratio > MOST} == {}


@pytest.mark.parametrize("tags", [MAX_TAGGED_FIELDS + 1, 100_000])
def test_tagged_fields_of_a_header_are_limited(tags):
    with pytest.raises(NetworkError, match=f"the header has {tags} tagged fields"):
        decode_response(compact(tags) + b"\x09\0" * tags, response_type("end_txn", 3))


def test_metadata_of_200_000_partitions_is_accepted():
    partition = b"".join([struct.pack(">hiii", 0, 7, 1, 5), b"\2\0\0\0\1", b"\2\0\0\0\1", b"\1\0"])
    topic = b"\0\0" + b"\2t" + b"\0" + compact(200_001) + partition * 200_000 + bytes(4) + b"\0"
    kind = response_type("metadata", 9)
    broker = bytes(4) + b"\2h" + bytes(4) + b"\0\0"
    data = b"\0" + bytes(4) + b"\2" + broker + b"\0" + bytes(4) + b"\2" + topic + bytes(4) + b"\0"
    assert len(decode_response(data, kind).topics[0].partitions) == 200_000


@pytest.mark.parametrize(("topics", "partitions"), [(200, 100), (2_000, 10), (20_000, 1)])
def test_incident_metadata_without_replicas_was_refused(topics, partitions):
    """Makers of other brokers, and proxies, may name the leaders only."""
    partition = struct.pack(">hiii", 0, 7, 1, 5) + b"\1\1\1\0"
    each = b"".join(
        b"\0\0" + b"\7%06d" % number + bytes(17) + compact(partitions + 1) + partition * partitions + bytes(4) + b"\0"
        for number in range(topics)
    )
    broker = bytes(4) + b"\2h" + bytes(4) + b"\0\0"
    data = b"\0" + bytes(4) + b"\2" + broker + b"\0" + bytes(4) + compact(topics + 1) + each + b"\0"
    assert len(decode_response(data, response_type("metadata", 12)).topics) == topics


@pytest.mark.parametrize("state", [b"Empty", b"Ongoing", b"CompleteCommit"])
def test_a_list_of_1_4_million_transactional_ids_is_accepted(state):
    kind = response_type("list_transactions", 0)
    states = b"".join(
        b"%c%s" % (len(name) + 1, name) + bytes(8) + b"%c%s" % (len(state) + 1, state) + b"\0"
        for name in (b"%d" % number for number in range(1_400_000))
    )
    data = b"\0" + bytes(6) + b"\1" + compact(1_400_001) + states + b"\0"
    checked = check_response(data, 1, kind)
    assert checked.end == len(data)


PARTITIONS = 3000


def produce_response(partition: Callable[[int], bytes], count: int = PARTITIONS) -> bytes:
    parts = b"".join(partition(index) for index in range(count))
    return b"\0\2\5name" + compact(count + 1) + parts + b"\0" + bytes(4) + b"\0"


def partition_response(index: int, code: int = 0, after: bytes = b"\1\0\0") -> bytes:
    return struct.pack(">ihqqq", index, code, 17, -1, 0) + after


PRODUCE_HOSTILE = {
    "tagged fields": b"\0" + compact(50_000) + b"\x09\0" * 50_000,
    "topics": b"\0" + compact(30_001) + b"\1\1\0" * 30_000 + bytes(5),
    "record errors": produce_response(
        lambda _: partition_response(0, 87, compact(20_001) + (bytes(4) + b"\0\0") * 20_000 + b"\0\0"), 1
    ),
    "more partitions": produce_response(lambda index: partition_response(index, 6), PARTITIONS + 1),
}


@pytest.mark.parametrize("what", PRODUCE_HOSTILE)
def test_a_hostile_produce_response_costs_at_most_twice_the_cpu_of_an_honest_one(what):
    beside, data = produce_response(partition_response), PRODUCE_HOSTILE[what]

    def read(each: bytes) -> object:
        return read_response(12, memoryview(each), PARTITIONS)

    read(beside)
    with pytest.raises(NetworkError):
        read(data)
    assert ratio_per_byte(read, data, beside) <= MOST
