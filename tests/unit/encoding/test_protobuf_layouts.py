"""The same values in every Arrow layout: the same messages."""

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink import encode_protobuf
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.schemas.encoding.encoder import SchemaMismatchError
from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from tests.unit.arrow_views import with_views
from tests.unit.encoding.protos import proto2, proto3, struct, upb

SCHEMA = proto3(
    """
    message M {
      optional string name = 1; repeated int32 numbers = 2; map<string, In> ins = 3; In in = 4; repeated In list = 5;
      optional int64 id = 6; enum Color { RED = 0; BLUE = 5; } repeated Color colors = 7; repeated bool flags = 8;
    }
    message In { string name = 1; repeated string names = 2; google.protobuf.Timestamp at = 3; }
    """
)


def messages(array: pa.Array, descriptor_set: bytes = SCHEMA) -> list:
    encoded = encode_protobuf(array, descriptor_set, "M").to_pylist()
    return [None if each is None else upb(descriptor_set).FromString(each) for each in encoded]


def test_a_null_parent_may_span_slots():
    names = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), pa.array(["a", "b", "c", "d"]))
    inner = pa.StructArray.from_arrays(
        [pa.array(["x", "y", "z"]), names], ["name", "names"], mask=pa.array([False, True, False])
    )
    outer = pa.StructArray.from_arrays([inner, pa.array([5, 6, 7])], ["in", "id"], mask=pa.array([False, False, True]))
    first, second, third = messages(outer)
    assert (getattr(first, "in").name, list(getattr(first, "in").names), first.id) == ("x", ["a"], 5)
    assert (second.HasField("in"), second.id) == (False, 6)
    assert third is None


def test_null_types_are_absent_everywhere():
    array = struct(
        name=pa.nulls(2),
        numbers=pa.array([[None], None], pa.list_(pa.null())),
        ins=pa.array([[("a", None)], None], pa.map_(pa.string(), pa.null())),
        list=pa.nulls(2),
    )
    assert [each.ByteSize() for each in messages(array)] == [0, 0]


def mebibytes(rows: int) -> pa.Array:
    """Views of one buffer."""
    views = np.zeros((rows, 4), np.int32)
    views[:, 0] = 1 << 20
    return pa.Array.from_buffers(pa.binary_view(), rows, [None, pa.py_buffer(views), pa.py_buffer(bytes(1 << 20))])


@with_views
def test_large_rows_are_encoded_in_smaller_slices():
    schema = proto3("message M { bytes data = 1; int64 id = 2; }")
    array = struct(data=mebibytes(150), id=pa.array(range(150), pa.int64()))
    encoded = encode_protobuf(array, schema, "M")
    assert [upb(schema).FromString(encoded[row].as_py()).id for row in (0, 74, 149)] == [0, 74, 149]


@with_views
def test_a_row_of_more_than_2_gib_is_an_error():
    schema = proto3("message M { repeated bytes data = 1; }")
    array = struct(
        data=pa.ListViewArray.from_arrays(pa.array([0], pa.int32()), pa.array([2049], pa.int32()), mebibytes(2049))
    )
    with pytest.raises(InvalidRecordError, match=r"^more than 2 GiB of encoded rows: encode fewer rows at once$"):
        encode_protobuf(array, schema, "M")


def test_a_column_that_is_no_struct_is_an_error():
    with pytest.raises(SchemaMismatchError, match=r"^column type string does not fit message M: give a struct$"):
        plan_protobuf(SCHEMA, "M", pa.string())


def test_required_fields_of_an_absent_message_are_not_asked_for():
    schema = proto2("message M { optional In in = 1; } message In { required int32 x = 1; }")
    kind = pa.struct({"in": pa.struct({"x": pa.int32()})})
    assert encode_protobuf(pa.array([{"in": None}, {"in": {"x": 0}}], kind), schema, "M").to_pylist() == [
        b"",
        b"\x0a\x02\x08\x00",
    ]
