import struct

import pytest
from crc32c import crc32c

from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.exactly_once.decode import batch_headers, decode_batches
from spark_kafka_sink.records.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, stamp_header

# length 8, attributes, timestamp delta 1, offset delta, key "k", value null, no headers
FIRST = bytes.fromhex("100002 00 026b 01 00")
FIRST = bytes([2 * (len(FIRST) - 1)]) + FIRST[1:]
SECOND = FIRST[:3] + b"\x02" + FIRST[4:]


def batch(records: bytes = FIRST + SECOND, attributes: int = 0, count: int = 2) -> bytes:
    return stamp_header(BatchHeader(attributes, count, 1000, 2000, 7, 8, 9), [records]) + records


def patched(data: bytes, form: str, place: int, value: int) -> bytes:
    """``data`` with one field of its batch header changed, and the CRC made right again."""
    changed = bytearray(data)
    struct.pack_into(form, changed, place, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def test_log_append_time_takes_the_place_of_the_records_own():
    (decoded,) = decode_batches(batch(attributes=LOG_APPEND_TIME))
    assert [record.timestamp for record in decoded.records] == [2000, 2000]


def test_a_batch_cut_short_is_left_out_only_where_that_is_expected():
    data = batch()
    for cut in (1, len(data) - HEADER_SIZE + 3):
        assert len(decode_batches(data + data[:-cut], partial_tail=True)) == 1
        with pytest.raises(CorruptRecordError, match=f"byte {len(data)}"):
            decode_batches(data + data[:-cut])


def test_a_wrong_crc_is_noticed():
    data = bytearray(batch())
    data[-1] ^= 1
    assert not batch_headers(bytes(data))[0].crc_ok
    assert batch_headers(batch())[0].crc_ok
    with pytest.raises(CorruptRecordError, match="crc"):
        decode_batches(bytes(data))


LONG_VARINT = b"\x80" * 10 + b"\x00"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (patched(batch(), ">b", 16, 1), "magic 1"),
        (patched(batch(), ">i", 8, 10), "cannot be 22 bytes"),
        (batch(FIRST, count=2), "fewer than 2"),
        (batch(FIRST + SECOND, count=1), "left behind"),
        (batch(FIRST + FIRST), "do not grow"),
        (batch(SECOND, count=1), "outside 0 to 0"),
        (batch(bytes([FIRST[0] + 2]) + FIRST[1:], count=1), "says 8 bytes and has 7"),
        (batch(FIRST[:-1] + b"\x01", count=1), "-1 headers"),
        (batch(bytes([FIRST[0] + 4]) + FIRST[1:-1] + b"\x02\x01\x01", count=1), "null header key"),
        (batch(FIRST[:4] + b"\x03" + FIRST[5:], count=1), "length of -2"),
        (batch(LONG_VARINT, count=1), "more than 10 bytes"),
        (batch(b"\x80\x80\x80\x80\x80\x01", count=1), "beyond 32 bits"),
    ],
)
def test_what_does_not_add_up_is_refused(data, message):
    with pytest.raises(CorruptRecordError, match=message):
        decode_batches(data)
