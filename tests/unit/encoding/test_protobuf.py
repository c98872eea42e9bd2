import pickle
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_kafka_sink import encode_protobuf
from spark_kafka_sink.schemas.encoding.encoder import SchemaMismatchError
from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from tests.unit.encoding.protos import compiled, faults, proto2, proto3, upb


def test_a_pickled_encoder_works_where_protobuf_is_not_installed(tmp_path):
    plan = tmp_path / "plan"
    plan.write_bytes(
        pickle.dumps(plan_protobuf(proto3("message M { int64 id = 1; }"), "M", pa.struct([("id", pa.int64())])))
    )
    program = (
        "import pickle, sys; sys.modules['google.protobuf'] = None\n"
        "encoder = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "import pyarrow as pa; print(encoder.encode(pa.array([{'id': 5}], encoder.kind)).to_pylist())\n"
        "from spark_kafka_sink import encode_protobuf\n"
        "encode_protobuf(pa.array([{'id': 5}]), b'', 'M')"
    )
    done = subprocess.run([sys.executable, "-c", program, plan], capture_output=True, text=True, check=False)
    assert done.stdout == "[b'\\x08\\x05']\n"
    assert "pip install protobuf" in done.stderr.splitlines()[-1]


def test_all_faulty_rows_of_an_array_are_named():
    schema = proto2("message M { required uint32 id = 1; optional string name = 2; repeated uint64 more = 3; }")
    rows = [
        {"id": 1, "name": b"ok", "more": [1, 2]},
        {"id": None, "name": b"ok", "more": []},
        {"id": -5, "name": b"ok", "more": []},
        {"id": 1, "name": b"\xff", "more": []},
        None,
        {"id": 1, "name": None, "more": [3, -1]},
    ]
    array = pa.array(rows, pa.struct({"id": pa.int32(), "name": pa.binary(), "more": pa.list_(pa.int64())}))
    assert faults(array, schema) == [
        (1, "id", "null is not allowed: the field is required"),
        (2, "id", "-5 is out of range for uint32"),
        (3, "name", "b'\\xff' is not UTF-8, and a Protobuf string is"),
        (5, "more[]", "-1 is out of range for uint64"),
    ]


def test_incident_a_decimal_was_refused_for_uint64_which_spark_reads_as_one():
    schema = proto3("message M { uint64 a = 1; repeated fixed64 b = 2; google.protobuf.UInt64Value c = 3; }")
    large = [Decimal(2**63), Decimal(2**64 - 1), Decimal(-1), Decimal(2**64)]
    kind = pa.struct([("a", pa.decimal128(20)), ("b", pa.list_(pa.decimal128(20))), ("c", pa.decimal128(20))])
    rows = pa.array([{}, {"a": large[1], "b": large[:2], "c": large[0]}, {"a": None, "b": []}], kind)[1:]
    wanted = upb(schema)(a=2**64 - 1, b=[2**63, 2**64 - 1], c={"value": 2**63})
    assert encode_protobuf(rows, schema, "M").to_pylist() == [wanted.SerializeToString(), b""]
    said = [(0, "a", "-1 is out of range for uint64"), (1, "b[]", f"{2**64} is out of range for fixed64")]
    assert faults(pa.array([{"a": large[2]}, {"b": large[3:]}], kind), schema) == said


def test_all_mismatches_are_named():
    schema = compiled(
        """
        syntax = "proto2";
        message M {
          required int64 id = 1; optional string name = 4;
          repeated bool flags = 5; optional group G = 6 { optional int32 x = 1; } optional In in = 7;
          map<string, int32> counts = 9;
        }
        message In { required string line = 1; }
        """
    )
    kind = pa.struct(
        {
            "name": pa.decimal128(10, 2),
            "flags": pa.bool_(),
            "g": pa.struct({"x": pa.int32()}),
            "in": pa.struct({"lines": pa.string()}),
            "counts": pa.map_(pa.int32(), pa.int32()),
            "other": pa.int32(),
        }
    )
    with pytest.raises(SchemaMismatchError) as raised:
        plan_protobuf(schema, "M", kind)
    assert raised.value.mismatches == (
        "name: column type decimal(10,2) does not fit Protobuf type string",
        "flags: column type boolean does not fit Protobuf type repeated bool",
        "g: Protobuf groups cannot be written (M.G): leave the column out",
        "in.lines: In has no such field (string)",
        "in.line: no such column, and In requires the field",
        "counts.key: column type int does not fit Protobuf type string",
        "other: M has no such field (int)",
        "id: no such column, and M requires the field",
    )
