"""What a large or hostile schema costs: work that grows with its bytes, or a limit with an error; short texts."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.schemas.encoding.avro import plan_avro
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError, SchemaMismatchError
from spark_kafka_sink.schemas.formats.proto_text import proto_files
from tests.unit.encoding.avro_referee import faults, mismatches, record
from tests.unit.encoding.protos import proto3


def calls(work: Callable[[], object]) -> int:
    """How many functions it calls, those of C among them."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def named(name: str, **fields: object) -> dict[str, object]:
    return {**record(**fields), "name": name}


def test_incident_work_on_a_schema_grew_by_the_square_of_its_size():
    fields = {f"f{number}": named(f"R{number}", x="int") for number in range(400)}
    schema = json.dumps({**record(**fields), "namespace": "n" * 10_000})
    assert calls(lambda: AvroSchema.parse(schema)) < 10 * len(schema)


def test_the_defaults_of_all_places_of_a_record_have_one_limit():
    large = {"name": "R", "type": "record", "fields": [{"name": "d", "type": "string", "default": "x" * 400_000}]}
    schema = {**named("T"), "fields": [{"name": "a", "type": large}, *record(b="R", c="R")["fields"]]}
    empty = pa.struct([])
    plan_avro(json.dumps({**schema, "fields": schema["fields"][:2]}), pa.struct([("a", empty), ("b", empty)]))
    with pytest.raises(SchemaMismatchError, match=r"c\.d: the fields without a column have defaults of more than"):
        plan_avro(json.dumps(schema), pa.struct([("a", empty), ("b", empty), ("c", empty)]))


@pytest.mark.parametrize("namespace", ["n" * (1 << 16), "n" * 60_000])
def test_incident_long_names_took_gigabytes(namespace):
    """Each type has its full name; this many have more than 64 MiB."""
    fields = {f"f{number}": named(f"R{number}") for number in range(1200)}
    with pytest.raises(InvalidSchemaError, match="has more than 64 KiB, or all names more than 64 MiB") as caught:
        AvroSchema.parse(json.dumps({**record(**fields), "namespace": namespace}))
    assert len(str(caught.value)) < 500


_SYMBOLS = [f"SYMBOL_{number}" for number in range(60_000)]
_ENUM = {"type": "enum", "name": "E", "symbols": _SYMBOLS}
_UNION = [named(f"R{number}") for number in range(10_000)]


def test_incident_each_reason_of_a_refused_row_had_all_symbols():
    (fault, *_) = faults(_ENUM, pa.array(["x" * 10_000_000] * 3))
    assert fault[2].startswith("'xxx")
    assert "is not a symbol of enum E: SYMBOL_0, SYMBOL_1, " in fault[2]
    assert fault[2].endswith(" more")
    assert len(fault[2]) < 500


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (_UNION, pa.int64()),
        ({"type": "array", "items": _UNION}, pa.list_(pa.int64())),
        (record(**{f"f{number}": _ENUM if not number else "E" for number in range(5_000)}), pa.struct([])),
        (record(x={**_ENUM, "name": "E" * 60_000}), pa.struct([("x", pa.int64())])),
    ],
)
def test_incident_mismatches_grew_with_the_schema(schema, kind):
    texts = mismatches(schema, kind)
    assert len(texts) <= 51
    assert max(map(len, texts)) < 500


def test_incident_a_task_told_the_driver_another_number_of_mismatches():
    error = SchemaMismatchError([f"column {number} does not fit" for number in range(200)])
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.mismatches, str(copied)) == (error.mismatches, str(error))
    assert copied.mismatches[-1] == "… and 150 more"


def test_incident_an_unknown_message_was_told_with_all_others():
    schema = proto3("".join(f"message M{number} {{}}" for number in range(2_000)))
    with pytest.raises(ConfigError, match=r"it has M0, M1, .* … and \d,\d{3} more$"):
        proto_files(schema, "X")
