"""Protobuf's wire format for all rows at once: a field's bytes as pieces of a ``RowJoin``.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import (
    Int32Array,
    Int64Array,
    binary_array,
    slot_lengths,
    without_nulls,
)
from spark_kafka_sink.records.encode import RowJoin

Mask: TypeAlias = npt.NDArray[np.bool_]
Unsigned: TypeAlias = npt.NDArray[np.unsignedinteger]
Words: TypeAlias = npt.NDArray[np.uint64]
Fixed: TypeAlias = npt.NDArray[np.number]
RowsAndEnds: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.uint8]]

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5

_ONE_BYTE = 0x80
_WORD = 8
_LARGEST_VARINT = 10
_MAX_BYTES = (1 << 31) - 1
_EVERY_BYTE = 0x0101010101010101


class Piece(NamedTuple):
    """Slot ``slots[i]`` of ``source`` for row ``i`` (None: slot ``i``), no bytes where ``missing[i]``."""

    source: pa.BinaryArray
    slots: Int32Array | None
    missing: Mask | None

    def all(self) -> bool:
        """The rows are the slots of ``source``."""
        return self.slots is None and self.missing is None


class Part(NamedTuple):
    """Bytes of each row, as pieces that follow each other; ``sizes``: how many, 0 where there are none."""

    sizes: Int64Array
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, rows: int, parts: Iterable[Part]) -> Part:
        """The parts, one behind the other."""
        sizes = np.zeros(rows, np.int64)
        pieces: list[Piece] = []
        for each in parts:
            sizes += each.sizes
            pieces += each.pieces
        return cls(sizes, tuple(pieces))

    def joined(self, prefix: bytes = b"", missing: Mask | None = None) -> pa.BinaryArray:
        """``prefix`` and the pieces as one slot a row; null where ``missing``, where no piece may have bytes."""
        rows = len(self.sizes)
        total = int(self.sizes.sum()) + len(prefix) * rows
        if total > _MAX_BYTES:
            raise too_large(total)
        if not prefix and not self.pieces:
            return binary_array(np.zeros(rows + 1, np.int32), b"", missing)
        if not prefix and missing is None and len(self.pieces) == 1 and self.pieces[0].all():
            return self.pieces[0].source
        join = RowJoin(rows, total)
        if prefix:
            join.slots(binary_array(np.array([0, len(prefix)], np.int32), prefix), 0, missing)
        order = np.arange(rows, dtype=np.int32)
        for source, slots, without in self.pieces:
            join.slots(source, order if slots is None else slots, without)
        data, starts = join.finish()
        return binary_array(np.ascontiguousarray(starts), data, missing)


def one_column(slices: list[pa.BinaryArray]) -> pa.BinaryArray:
    """The slices of a column, one behind the other."""
    total = sum(int(np.maximum(slot_lengths(each), 0).sum(dtype=np.int64)) for each in slices)
    if total > _MAX_BYTES:
        raise too_large(total)
    return pa.concat_arrays(slices) if slices else binary_array(np.zeros(1, np.int32), b"")


def too_large(total: int) -> InvalidRecordError:
    return InvalidRecordError(
        f"the rows take {total} bytes encoded, and an Arrow array of bytes holds at most {_MAX_BYTES}: "
        "encode fewer rows at once"
    )


def tag(number: int, wire_type: int) -> bytes:
    """What stands in front of a field's value."""
    rest = number << 3 | wire_type
    encoded = bytearray()
    while rest >= _ONE_BYTE:
        encoded.append(rest & 0x7F | _ONE_BYTE)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class Values(Protocol):
    """The values of a field, one a row; a row without one has any value of the right type that is zero."""

    def zeros(self) -> Mask:
        """Where the value is the type's default: not written in fields without presence."""

    def part(self, before: bytes, missing: Mask | None) -> Part:
        """``before`` and the value; no bytes where ``missing``."""


class Varints(NamedTuple):
    numbers: Unsigned

    def zeros(self) -> Mask:
        zeros: Mask = self.numbers == 0
        return zeros

    def part(self, before: bytes, missing: Mask | None) -> Part:
        numbers = self.numbers
        if int(numbers.max(initial=0)) < _ONE_BYTE:
            sizes = _sizes_of(len(before) + 1, len(numbers), missing)
            return Part(sizes, (Piece(_short_varints(before), numbers.astype(np.int32), missing),))
        words, large, sizes = _varint_words(numbers.astype(np.uint64, copy=False))
        width = len(before) + (_LARGEST_VARINT if large is not None else int(sizes.max()))
        if width <= _WORD:
            words <<= np.uint64(8 * len(before))
            words |= np.uint64(int.from_bytes(before, "little"))
            data = words.astype("<u8", copy=False).view(np.uint8)
            width = _WORD
        else:
            width = len(before) + (_LARGEST_VARINT if large is not None else _WORD)
            data = _behind(before, words.astype("<u8", copy=False), width)
            if large is not None:
                rows, ends = large
                data.reshape(-1, width)[rows, -2:] = ends
        sizes += len(before)
        # Each slot is followed by one that spans the rest of its width.
        bounds = np.empty(2 * len(sizes) + 1, np.int32)
        bounds[::2] = np.arange(len(sizes) + 1, dtype=np.int32) * width
        np.add(bounds[:-1:2], sizes, out=bounds[1::2], casting="unsafe")
        if missing is not None:
            sizes[missing] = 0
        return Part(
            sizes, (Piece(binary_array(bounds, data), np.arange(0, 2 * len(sizes), 2, dtype=np.int32), missing),)
        )


class Fixeds(NamedTuple):
    """Little-endian numbers of 4 or 8 bytes."""

    numbers: Fixed

    def zeros(self) -> Mask:
        zeros: Mask = self.numbers.view(f"u{self.numbers.itemsize}") == 0  # -0.0 is written
        return zeros

    def part(self, before: bytes, missing: Mask | None) -> Part:
        rows, width = len(self.numbers), len(before) + self.numbers.itemsize
        data = _behind(before, self.numbers, width) if before else self.numbers
        source = binary_array(np.arange(rows + 1, dtype=np.int32) * np.int32(width), data)
        return Part(_sizes_of(width, rows, missing), (Piece(source, None, missing),))


class Delimited(NamedTuple):
    """Bytes behind their length. ``lengths``: 0 where there is no value."""

    lengths: Int64Array
    body: tuple[Piece, ...]

    @classmethod
    def of(cls, column: pa.BinaryArray, missing: Mask | None = None) -> Delimited:
        """``missing``: where slots are null."""
        body = (Piece(without_nulls(column) if column.null_count else column, None, missing),)
        return cls(np.maximum(slot_lengths(column), 0).astype(np.int64), body)

    def zeros(self) -> Mask:
        zeros: Mask = self.lengths == 0
        return zeros

    def part(self, before: bytes, missing: Mask | None) -> Part:
        length = Varints(self.lengths.view(np.uint64)).part(before, missing)
        return Part(length.sizes + self.lengths, (*length.pieces, *self.body))


def _varint_words(
    numbers: Words,
) -> tuple[Words, RowsAndEnds | None, Int64Array]:
    """The first 8 bytes of each number's varint, the rows of longer ones with their last 2 bytes, and the sizes."""
    words = (numbers & np.uint64(0x0FFFFFFF)) | ((numbers & np.uint64(0x00FFFFFFF0000000)) << np.uint64(4))
    words = (words & np.uint64(0x00003FFF00003FFF)) | ((words & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2))
    words = (words & np.uint64(0x007F007F007F007F)) | ((words & np.uint64(0x3F803F803F803F80)) << np.uint64(1))
    # A byte has its highest bit set where a byte above it is not zero.
    above = words >> np.uint64(8)
    for bits in (8, 16, 32):
        above |= above >> np.uint64(bits)
    above += np.uint64(0x7F * _EVERY_BYTE)
    above &= np.uint64(0x80 * _EVERY_BYTE)
    words |= above
    above >>= np.uint64(7)
    above *= np.uint64(_EVERY_BYTE)
    above >>= np.uint64(56)
    sizes = above.view(np.int64)
    sizes += 1
    if int(numbers.max(initial=0)) < 1 << 56:
        return words, None, sizes
    rows = np.flatnonzero(numbers >= np.uint64(1 << 56))
    top = (numbers[rows] >> np.uint64(56)).astype(np.uint8)
    words[rows] |= np.uint64(0x80 * _EVERY_BYTE)
    sizes[rows] = 9 + (top >> 7)
    return words, (rows, np.stack((top, top >> 7), axis=1)), sizes


def _behind(before: bytes, numbers: Fixed, width: int) -> npt.NDArray[np.uint8]:
    """``width`` bytes a row: ``before``, the number, then arbitrary ones."""
    data = np.empty(len(numbers) * width, np.uint8)
    data.reshape(-1, width)[:, : len(before)] = np.frombuffer(before, np.uint8)
    places: Fixed = np.ndarray(numbers.shape, numbers.dtype, data, offset=len(before), strides=(width,))
    places[:] = numbers
    return data


def _sizes_of(size: int, rows: int, missing: Mask | None) -> Int64Array:
    return np.full(rows, size, np.int64) if missing is None else np.where(missing, 0, np.int64(size))


@lru_cache(4096)
def _short_varints(before: bytes) -> pa.BinaryArray:
    """Slot ``n`` is ``before`` and the varint of ``n``, which takes one byte."""
    numbers = np.arange(_ONE_BYTE, dtype=np.uint8)
    width = len(before) + 1
    return binary_array(np.arange(_ONE_BYTE + 1, dtype=np.int32) * width, _behind(before, numbers, width))
