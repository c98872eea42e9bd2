"""Whatever the bytes: where kio reads a response, the walk before it has seen the same fields, up to the same end."""

from __future__ import annotations

import struct
from random import Random

import pytest
from kio.serial import entity_reader

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.messages import decode_response, response_type
from spark_kafka_sink.network.response_check import check_response
from tests.unit.network.response_bytes import Shape
from tests.unit.network.test_unknown_codes import RESPONSES

VERSIONS = [(api, version) for api, all_of in RESPONSES.items() for version in all_of]
VERSIONS.append(("describe_topic_partitions", 0))  # has an entity that may be null
INSTEAD = [b"\x80\0", b"\x80\x80\0", b"\x81\0", b"\x81\x80\0", b"\0", b"\1", b"\x7f", b"\x80", b"\xfe", b"\xff"]


def bent(data: bytes, random: Random) -> bytes:
    """One byte is replaced by other bytes, such as a varint that is longer than it need be."""
    at = random.randrange(len(data))
    return data[:at] + random.choice([*INSTEAD, random.randbytes(1)]) + data[at + 1 :]


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_kio_reads_no_byte_that_the_walk_has_not_seen(api, version):
    kind = response_type(api, version)
    offset = int(kind.__header_schema__.__flexible__)
    random = Random(f"{api} {version}")
    whole = Shape(b"name", 2).response(kind)
    for _ in range(400):
        data = bent(whole, random)
        try:
            checked = check_response(data, offset, kind)
            readable = checked.readable(data)
        except (ValueError, IndexError):
            continue
        try:
            _, size = entity_reader(kind)(readable, offset)
        except Exception:
            continue  # kio says what is wrong with it
        assert size == checked.end - offset - (len(data) - len(readable))


def test_incident_a_null_in_two_bytes_made_kio_allocate_274_gb():
    """The walk took the null rack ``80 00`` for a byte less than kio did, and so did not see the next array."""
    kind = response_type("metadata", 12)
    broker = struct.pack(">i", 1) + b"\5host" + struct.pack(">i", 9092) + b"\x80\0" + b"\0"
    data = b"\0" + bytes(4) + b"\2" + broker + b"\1" + bytes(4) + b"\xff\xff\xff\xff\x0f" + b"\0" * 40
    with pytest.raises(NetworkError, match="elements is announced"):
        decode_response(data, kind)
