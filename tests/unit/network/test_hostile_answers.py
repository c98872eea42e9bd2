"""What a broker's nonsense must not cost: the process, or memory that was given back."""

from __future__ import annotations

import gc
import weakref

import pytest

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.messages import decode_response, response_type
from tests.unit.network.response_bytes import compact


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
