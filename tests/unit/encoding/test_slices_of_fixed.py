"""Encoded rows that are slices of their column, because nothing is written around the values."""

from __future__ import annotations

import json

import pyarrow as pa

from spark_kafka_sink.schemas.encoding import slices
from spark_kafka_sink.schemas.encoding.avro import AvroEncoder


def test_incident_the_bytes_before_each_slice_of_a_fixed_column_counted_again_towards_2_gib(monkeypatch):
    monkeypatch.setattr(slices, "_SLICE_ROWS", 10)
    monkeypatch.setattr(slices, "_MAX_BYTES", 1000)
    values = pa.array([b"%010d" % number for number in range(50)], pa.binary())
    schema = json.dumps({"type": "fixed", "name": "F", "size": 10})
    assert AvroEncoder.plan(schema, values.type).encode(values).to_pylist() == values.to_pylist()
