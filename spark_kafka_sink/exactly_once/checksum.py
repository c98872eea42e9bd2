"""An order-independent checksum of rows: equal for the same rows in any order, as a shuffle reorders them.

The 8-byte words of a row's fields are mixed, multiplied by fixed odd numbers and added (multilinear hashing mod 2^64).
The row's sum is mixed, and the rows' hashes are added. These 64 bits protect from accidents, not from an adversary.
Multiplication carries a difference only into higher bits. So each word is first multiplied and its bytes are reversed,
which brings the difference into the lowest byte; only then is it multiplied by its own constant and added. Fields of
similar length are padded to a matrix by one Arrow kernel, because hashing each row's bytes object takes 300 ns.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Final

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.exactly_once.values import RowChecksum
from spark_kafka_sink.producer.partitioner import LEFT_OUT
from spark_kafka_sink.records.arrays import Int64Array, bytes_column, int32_array, slot_lengths
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn

UInt64Array = npt.NDArray[np.uint64]

_MAX_MATRIX_WIDTH: Final = 512
"""The longest slot in a matrix, bytes. Longer slots are hashed one by one, which then costs less than encoding them."""

_CLASSES: Final = (16, 64, 192, _MAX_MATRIX_WIDTH)
"""The classes of slots by length, bytes: a slot is padded to the longest of its class."""

_MAX_MATRIX_BYTES: Final = 2 << 20
"""The size of a matrix, bytes, beyond which memory access takes longer than the products."""

_FEW_WORDS: Final = 4
_random = Random(0x6B61666B61)


def _odd(count: int) -> UInt64Array:
    """Odd multipliers. They are part of the ledger's format: other multipliers make other checksums, so they need
    another VERSION."""
    return np.array([_random.getrandbits(64) | 1 for _ in range(count)], np.uint64)


_BY_PLACE: Final = _odd(_MAX_MATRIX_WIDTH // 8)
_BY_LENGTH, _BY_KEY, _BY_VALUE, _BY_HEADERS, _BY_PARTITION, _BY_TIMESTAMP, _BY_WORD = _odd(7)
_MIX: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT: Final = np.uint64(33)
_EMPTY: Final = bytes_column([b""])[0]


def row_sum(
    topics: TopicColumn, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None = None
) -> RowChecksum:
    """The checksum of these rows. Takes the arguments of ``row_hashes``."""
    hashes = row_hashes(topics, columns, partitions)
    return RowChecksum(len(hashes), int(hashes.sum(dtype=np.uint64)))


def row_hashes(
    topics: TopicColumn, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None = None
) -> UInt64Array:
    """One hash per row. ``partitions``: the partitions that rows name, ``LEFT_OUT`` for a row that is left out; None:
    no row names one. A field that a row does not name adds nothing to its hash, because a batch in which no row names
    the field has no column for it. Nor does a timestamp of ``NO_TIMESTAMP`` add anything.
    """
    names = np.array([mmh3.hash64(name.encode(), signed=False)[0] for name in topics.names], np.uint64)
    sums = np.full(len(columns), names[0]) if topics.codes is None else names[topics.codes]
    fields = ((columns.key, _BY_KEY), (columns.value, _BY_VALUE), (columns.headers, _BY_HEADERS))
    for column, multiplier in fields:
        if column is not None:
            sums += slot_hashes(column) * multiplier
    for numbers, multiplier in ((partitions, _BY_PARTITION), (columns.timestamps, _BY_TIMESTAMP)):
        if numbers is not None:
            sums += (numbers.astype(np.int64) + 1).astype(np.uint64) * multiplier
    return _mix(sums if partitions is None else sums[partitions != LEFT_OUT])


def slot_hashes(column: pa.BinaryArray) -> UInt64Array:
    """One hash per slot, 0 for null. Empty values and zeros of different lengths have different hashes."""
    lengths = slot_lengths(column).astype(np.int64)
    longest = int(lengths.max(initial=0))
    if longest <= _MAX_MATRIX_WIDTH and longest * len(column) > _MAX_MATRIX_BYTES:
        half = len(column) // 2
        return np.concatenate([slot_hashes(column[:half]), slot_hashes(column[half:])])
    if longest <= _MAX_MATRIX_WIDTH and longest * len(lengths) <= 2 * int(lengths.sum()) + 16 * len(lengths):
        return _of_matrix(column, lengths, longest)
    hashes = np.empty(len(column), np.uint64)
    classes = np.searchsorted(_CLASSES, lengths)
    for number in range(len(_CLASSES) + 1):
        rows = np.flatnonzero(classes == number)
        if len(rows):
            slots = column.take(int32_array(rows.astype(np.int32)))
            in_matrix = number < len(_CLASSES)
            hashes[rows] = _of_matrix(slots, lengths[rows], int(lengths[rows].max())) if in_matrix else _of_long(slots)
    return hashes


def _of_matrix(column: pa.BinaryArray, lengths: Int64Array, longest: int) -> UInt64Array:
    words = max(-(-longest // 8), 1)
    if column.null_count:
        column = pc.fill_null(column, _EMPTY)  # the bytes under a null are undefined
    _, offsets, data = column.buffers()
    # The kernel pads strings; it does not look at what the bytes mean.
    strings = pa.StringArray.from_buffers(len(column), offsets, data, None, 0, column.offset)
    padded = pc.ascii_rpad(strings, words * 8, "\0")
    matrix = np.frombuffer(padded.buffers()[2], "<u8", len(column) * words).reshape(len(column), words)
    hashes = _products((matrix * _BY_WORD).view(">u8"))
    hashes += (lengths + 1).astype(np.uint64) * _BY_LENGTH  # a null slot has length -1
    return hashes


def _products(matrix: UInt64Array) -> UInt64Array:
    """The sum of each row's products. numpy's matrix product takes 6 ns a row, however short."""
    words = matrix.shape[1]
    if words > _FEW_WORDS:
        return matrix @ _BY_PLACE[:words]
    return sum((matrix[:, word] * _BY_PLACE[word] for word in range(words)), np.zeros(len(matrix), np.uint64))


def _of_long(column: pa.BinaryArray) -> UInt64Array:
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].tolist()
    view = memoryview(data)
    digests = b"".join([mmh3.mmh3_x64_128_digest(view[start:end]) for start, end in pairwise(bounds)])
    return np.frombuffer(digests, "<u8")[::2]


def _mix(hashes: UInt64Array) -> UInt64Array:
    """MurmurHash3's finalizer, in place: each bit of the result depends on every bit."""
    shifted = np.empty_like(hashes)
    for multiplier in _MIX:
        hashes ^= np.right_shift(hashes, _SHIFT, out=shifted)
        hashes *= multiplier
    hashes ^= np.right_shift(hashes, _SHIFT, out=shifted)
    return hashes
