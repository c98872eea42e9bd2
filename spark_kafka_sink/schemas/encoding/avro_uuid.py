"""UUIDs: as strings of 36 characters and as 16 bytes, either of either."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records.columns import binary_array
from spark_kafka_sink.records.sizes import encode_varint
from spark_kafka_sink.schemas.encoding.avro_values import Text
from spark_kafka_sink.schemas.encoding.columns import spans
from spark_kafka_sink.schemas.encoding.row_writer import WORD_BITS, Mask, RowWriter, bits_of, both

UUID_BYTES = 16
_CHARACTERS = 36
_LENGTH = encode_varint(_CHARACTERS)
_PATTERN = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_DASHES = (8, 13, 18, 23)
_DIGIT_PLACES = np.array([place for place in range(_CHARACTERS) if place not in _DASHES])
_DIGITS = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
_NIBBLES = np.zeros(256, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = range(16)
_NIBBLES[np.frombuffer(b"ABCDEF", np.uint8)] = range(10, 16)


@dataclass(frozen=True, slots=True)
class Uuid:
    """A string."""

    path: str

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, _, _ = spans(array, keep)
        bad = _not_uuids(column, keep)
        if bad.any():
            writer.refuse(bad, self.path, array, "is not a UUID")
        Text(self.path).write(writer, array, keep)


@dataclass(frozen=True, slots=True)
class UuidText:
    """A string of 36 characters, of 16 bytes."""

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        data = np.frombuffer(array.buffers()[1], np.uint8, len(array) * UUID_BYTES, array.offset * UUID_BYTES)
        text = np.full((len(array), _CHARACTERS), ord("-"), np.uint8)
        text[:, _DIGIT_PLACES] = _DIGITS[data].view(np.uint8).reshape(len(array), 2 * UUID_BYTES)
        writer.fixed(_LENGTH, keep)
        ends = np.arange(len(array) + 1, dtype=np.int32) * np.int32(_CHARACTERS)
        writer.column(binary_array(ends, text), None if keep is None else keep == 0)


@dataclass(frozen=True, slots=True)
class UuidBytes:
    """16 bytes, of a string of 36 characters."""

    path: str

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, _, _ = spans(array, keep)
        bad = _not_uuids(column, keep)
        if bad.any():
            writer.refuse(bad, self.path, array, "is not a UUID")
            keep = both(keep, np.where(bad, np.uint64(0), ~np.uint64(0)))
        _, offsets, data = column.buffers()
        starts = np.frombuffer(offsets, np.int32, len(column)).astype(np.int64)
        if keep is not None:
            starts = starts[keep != 0]
        characters = np.frombuffer(data, np.uint8)[starts[:, None] + _DIGIT_PLACES]
        nibbles = _NIBBLES[characters]
        numbers = ((nibbles[:, ::2] << 4) | nibbles[:, 1::2]).view(np.uint64)
        words = np.zeros((len(column), 2), np.uint64)
        words[slice(None) if keep is None else keep != 0] = numbers
        for word in words.T:
            writer.words(word, WORD_BITS if keep is None else keep & WORD_BITS, WORD_BITS)


def _not_uuids(column: pa.BinaryArray, keep: Mask | None) -> npt.NDArray[np.bool_]:
    """The rows of ``keep`` that are no UUID."""
    matches = pc.match_substring_regex(column, _PATTERN)
    bad: npt.NDArray[np.bool_] = bits_of(matches, 1) == 0
    return bad if keep is None else bad & (keep != 0)
