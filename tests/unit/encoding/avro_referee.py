"""fastavro, row by row: the bytes that the columnar encoder must make."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from spark_kafka_sink import encode_avro
from spark_kafka_sink.schemas.encoding.avro import plan_avro
from spark_kafka_sink.schemas.encoding.encoder import SchemaMismatchError, UnencodableRowsError


def record(**fields: Any) -> dict[str, Any]:
    """The schema of a record ``R``."""
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": each} for name, each in fields.items()]}


def written(schema: Any, rows: Iterable[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    result = []
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        result.append(buffer.getvalue())
    return result


def read(schema: Any, data: bytes) -> Any:
    """The value, if it takes all of ``data``."""
    buffer = io.BytesIO(data)
    value = fastavro.schemaless_reader(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), None)
    assert not buffer.read()
    return value


def encoded(schema: Any, array: pa.Array | pa.ChunkedArray) -> list[bytes | None]:
    result = encode_avro(array, json.dumps(schema))
    result.validate(full=True)
    return result.to_pylist()


def struct(**columns: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def mismatches(schema: Any, kind: pa.DataType) -> list[str]:
    with pytest.raises(SchemaMismatchError) as caught:
        plan_avro(json.dumps(schema), kind)
    return list(caught.value.mismatches)


def faults(schema: Any, array: pa.Array | pa.ChunkedArray) -> list[tuple[int, str, str]]:
    with pytest.raises(UnencodableRowsError) as caught:
        encode_avro(array, json.dumps(schema))
    return [tuple(fault) for fault in caught.value.faults]
