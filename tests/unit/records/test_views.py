import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.records.views import INLINE_BYTES, join, slot_views
from tests.unit.arrow_views import with_views


def slots(array: pa.BinaryArray, order: np.ndarray | None = None) -> list[bytes]:
    views = slot_views(array, np.arange(len(array)) if order is None else order, 1)
    return join(views, [pa.py_buffer(b"another column"), array.buffers()[2]]).to_pylist()


# Around the length up to which a view holds the bytes itself.
LENGTHS = [0, 1, 3, 4, 5, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, 100, 0, 70_000, 12, 0]


@with_views
@pytest.mark.parametrize(
    "lengths", [LENGTHS, [n for n in LENGTHS if n <= INLINE_BYTES], [n for n in LENGTHS if n > INLINE_BYTES], [0, 0]]
)
def test_slots_are_those_of_the_column_in_every_order_and_slice(lengths):
    expected = [bytes([65 + row]) * length for row, length in enumerate(lengths)]
    array = pa.array(expected, pa.binary())
    assert slots(array) == expected
    order = np.array([*reversed(range(len(lengths))), 0])
    assert slots(array, order) == [expected[row] for row in order]
    for start in range(len(lengths)):
        part = array[start : start + 2]
        assert slots(part) == expected[start : start + 2]
        assert slots(part, np.array([len(part) - 1, 0])) == [expected[start + len(part) - 1], expected[start]]
