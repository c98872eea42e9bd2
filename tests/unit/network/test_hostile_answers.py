"""What a broker's nonsense must not cost: the process, or memory that was given back."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from datetime import UTC, datetime, timedelta
from random import Random
from types import UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.messages import decode_response, response_type
from tests.unit.network.response_bytes import compact

PRIMITIVES = {
    "bool": lambda random: random.random() < 0.5,
    "int8": lambda random: random.randrange(-128, 128),
    "int16": lambda random: random.randrange(-(2**15), 2**15),
    "int32": lambda random: random.randrange(-(2**31), 2**31),
    "int64": lambda random: random.randrange(-(2**63), 2**63),
    "error_code": lambda random: random.choice(list(ErrorCode)),
    "timedelta_i32": lambda random: timedelta(milliseconds=random.randrange(2**31)),
    "timedelta_i64": lambda random: timedelta(milliseconds=random.randrange(2**40)),
    "datetime_i64": lambda random: datetime.fromtimestamp(random.randrange(2**31), UTC),
    "uuid": lambda random: UUID(int=random.getrandbits(128) | 1),
    "string": lambda random: "x" * random.choice([0, 1, 5, 126, 127, 300]),
    "bytes": lambda random: b"x" * random.choice([0, 1, 5, 126, 127, 300]),
    "records": lambda random: b"x" * random.choice([1, 5, 126, 127, 300]),
}


def any_entity(kind: Any, random: Random) -> Any:
    return kind(**{field.name: any_value(field, field.type, random) for field in dataclasses.fields(kind)})


def any_value(field: Any, kind: Any, random: Random) -> Any:
    if get_origin(kind) is UnionType:
        if random.random() < 0.3 and field.metadata.get("kafka_type") != "uuid":
            return None
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is tuple:
        return tuple(any_value(field, get_args(kind)[0], random) for _ in range(random.choice([0, 1, 2, 3])))
    if dataclasses.is_dataclass(kind):
        return any_entity(kind, random)
    return PRIMITIVES[field.metadata["kafka_type"]](random)


@pytest.mark.parametrize("length", [1000, 2**28, 2**32, 2**35 - 1])
@pytest.mark.parametrize(
    ("api", "version", "before"),
    [
        ("metadata", 12, b"\0" + bytes(4)),
        ("produce", 12, b"\0"),
        ("produce", 12, b"\0\2\2t"),
        ("produce", 12, b"\0" + compact(1) + bytes(4) + b"\1\0" + compact(5)),
        ("add_partitions_to_txn", 4, b"\0" + bytes(6)),
    ],
    ids=["brokers", "topics", "partitions", "tagged endpoints", "transactions"],
)
def test_an_array_longer_than_its_frame_is_an_error_and_not_the_end_of_the_process(api, version, before, length):
    """kio reserved 256 GiB for the topics of a Produce answer of eight bytes, and the process was aborted."""
    with pytest.raises(NetworkError, match=rf"v{version} of \d+ bytes cannot be read: an array of {length - 1} elem"):
        decode_response(before + compact(length) + bytes(100), response_type(api, version))


@pytest.mark.parametrize(
    ("api", "version", "before"),
    [("metadata", 12, b"\0" + bytes(4)), ("produce", 12, b"\0"), ("produce", 12, b"\0\2\2t")],
    ids=["brokers", "topics", "partitions"],
)
def test_an_array_that_must_be_there_is_not_null(api, version, before):
    """kio read None, and the sender's thread died of going through it."""
    with pytest.raises(NetworkError, match="an array is null that must not be"):
        decode_response(before + b"\0" + bytes(100), response_type(api, version))


def test_an_array_of_an_inflexible_version_is_no_longer_than_its_frame_either():
    with pytest.raises(NetworkError, match="an array of 2147483647 elements is announced, and 20 bytes follow"):
        decode_response(b"\0\0\x7f\xff\xff\xff" + bytes(20), response_type("api_versions", 0))


@pytest.mark.parametrize("is_answer", [True, False], ids=["an unreadable answer", "another request's answer"])
def test_an_error_that_is_kept_keeps_no_batch(turns, node, is_answer):
    """A log handler kept the warning, its error kept the frames it came through, and these kept the batches' bytes."""

    class Batch:
        def completed(self, response):
            pass

    connection = turns.make_ready(node)
    batch = Batch()
    still_there = weakref.ref(batch)
    turns.send(node, on_complete=batch.completed)
    del batch
    correlation_id = turns.transport.requests.pop().correlation_id + (not is_answer)
    turns.transport.receive(connection, b"\0\0\0\7" + correlation_id.to_bytes(4, "big") + b"???")
    turns.turn()
    (kept,) = turns.client.drain_disconnects()
    gc.collect()
    assert still_there() is None, kept
