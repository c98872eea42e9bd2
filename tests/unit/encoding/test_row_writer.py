"""Fields of any length beside each other, and varints, row by row as Python writes them."""

import itertools
import random

import numpy as np
import pytest

from spark_kafka_sink.records.columns import bytes_column
from spark_kafka_sink.schemas.encoding.encoder import RowWriter, write_varints

ROWS = 50


def uint64(numbers):
    return np.array(numbers, np.uint64)


def mask(kept):
    return np.negative(uint64(kept))


def finished(writer):
    starts, data = writer.finish()
    return [bytes(data[start:end]) for start, end in itertools.pairwise(starts)]


def write_field(chosen, writer, rows):
    """One of a random kind and length, into the writer and behind each of ``rows``."""
    size = chosen.randint(1, 8)
    fields = [chosen.randbytes(chosen.randint(0, size)) for _ in rows]
    kind = chosen.choice(["words", "all alike", "kept", "column"])
    if kind == "all alike":
        fields = [chosen.randbytes(size)] * len(rows)
        writer.fixed(fields[0], None)
    elif kind == "kept":
        kept = [chosen.randint(0, 1) for _ in rows]
        data = chosen.randbytes(chosen.choice([size, 20]))
        fields = [data * each for each in kept]
        writer.fixed(data, mask(kept))
    elif kind == "column":
        writer.column(bytes_column(fields))
    else:
        words = uint64([int.from_bytes(each, "little") for each in fields])
        writer.words(words, uint64([8 * len(each) for each in fields]), 8 * size)
    return [row + field for row, field in zip(rows, fields, strict=True)]


@pytest.mark.parametrize("seed", range(30))
def test_fields_of_any_length_are_written_one_after_the_other(seed):
    chosen = random.Random(seed)
    writer, rows = RowWriter(ROWS), [b""] * ROWS
    for _ in range(chosen.randint(1, 12)):
        rows = write_field(chosen, writer, rows)
    assert writer.lengths().tolist() == [len(row) for row in rows]
    assert finished(writer) == rows


@pytest.mark.parametrize("seed", range(10))
def test_another_writers_fields_follow_on_those_that_are_there(seed):
    chosen = random.Random(seed)
    writer, rows = RowWriter(ROWS), [b""] * ROWS
    for _ in range(3):
        inner, inside = RowWriter(ROWS), [b""] * ROWS
        for _ in range(chosen.randint(0, 4)):
            rows = write_field(chosen, writer, rows)
            inside = write_field(chosen, inner, inside)
        writer.append(inner)
        rows = [row + more for row, more in zip(rows, inside, strict=True)]
    assert finished(writer) == rows


def varint(number):
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


@pytest.mark.parametrize("bits", [1, 7, 8, 14, 15, 28, 29, 35, 42, 49, 55, 56, 57, 62, 63, 64])
@pytest.mark.parametrize("tag", [b"", b"\x08", b"\x80\x80\x80\x80\x08"])
@pytest.mark.parametrize("kept", [None, [0, 1, 1]])
def test_varints_of_each_length(bits, tag, kept):
    edges = sorted({max(0, (1 << each) + step) for each in (*range(0, bits, 7), bits) for step in (-1, 0)})
    numbers = [number for number in edges if number < 1 << bits]
    keeps = [True] * len(numbers) if kept is None else [bool(kept[each % 3]) for each in range(len(numbers))]
    writer = RowWriter(len(numbers))
    write_varints(writer, uint64(numbers), None if kept is None else mask(keeps), tag)
    expected = [tag + varint(number) if keep else b"" for number, keep in zip(numbers, keeps, strict=True)]
    assert finished(writer) == expected
