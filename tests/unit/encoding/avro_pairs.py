"""Pairs of Avro schemas, reader and writer, with what the reader cannot read."""

from __future__ import annotations

from typing import Any

E = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
F = {"type": "fixed", "name": "F", "size": 4}


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Fields as (name, type) or (name, type, default)."""
    made = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def linked(value: Any) -> dict[str, Any]:
    return record(("value", value), ("next", ["null", "R"]))


PAIRS: tuple[tuple[Any, Any, list[str]], ...] = (
    ("int", "int", []),
    ("long", "int", []),
    ("int", "long", ["int does not read long"]),
    ("float", "long", []),
    ("double", "float", []),
    ("float", "double", ["float does not read double"]),
    ("string", "bytes", []),
    ("bytes", "string", []),
    ("string", "int", ["string does not read int"]),
    ("null", "int", ["null does not read int"]),
    (["null", "long"], "int", []),
    (["null", "string"], "int", ["no branch of [null, string] reads int"]),
    ("long", ["int", "long"], []),
    ("long", ["null", "long"], ["long does not read null"]),
    (["null", "long"], ["int", "null"], []),
    (["null", "long"], ["null", "string"], ["no branch of [null, long] reads string"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, ["[]: int does not read long"]),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, ["[]: int does not read long"]),
    ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, ["map of int does not read array of int"]),
    (E, E, []),
    (E, {**E, "symbols": ["B"]}, []),
    (E, {**E, "symbols": ["A", "C", "D"]}, ["enum E lacks C, D"]),
    ({**E, "default": "A"}, {**E, "symbols": ["A", "C"]}, []),
    (E, {**E, "name": "G"}, ["enum E has another name than enum G"]),
    (F, F, []),
    (F, {**F, "name": "n.F"}, []),
    (F, {**F, "size": 5}, ["fixed F(4) has another size than fixed F(5)"]),
    (F, {**F, "name": "G"}, ["fixed F(4) has another name than fixed G(4)"]),
    (record(("a", "int")), record(("a", "int"), ("b", "int")), []),
    (record(("a", "long"), ("b", ["null", "int"], None)), record(("a", "int")), []),
    (record(("a", "int"), ("b", "int")), record(("a", "int")), ["b: has no default and is not written"]),
    (record(("a", "int"), ("b", {**E, "default": "A"})), record(("a", "int")),
     ["b: has no default and is not written"]),
    (record(("a", "int")), record(("a", "string"), ("b", "int")), ["a: int does not read string"]),
    (record(("a", "int"), ("b", "int")), record(("a", "long")),
     ["a: int does not read long", "b: has no default and is not written"]),
    (record(("a", record(("b", "int"), name="S"))), record(("a", record(("b", "long"), name="S"))),
     ["a.b: int does not read long"]),
    (record(("a", "int")), record(("a", "int"), name="S"), ["record R has another name than record S"]),
    (record(("a", "int")), record(("a", "int"), name="n.R"), []),
    (record(("a", "int"), aliases=["S"]), record(("a", "int"), name="S"), []),
    (record(("a", "int"), name="n.R", aliases=["S"]), record(("a", "int"), name="n.S"), []),
    (record(("a", "int"), name="n.R", aliases=["S"]), record(("a", "int"), name="S"),
     ["record n.R has another name than record S"]),
    ({**record(), "fields": [{"name": "a", "aliases": ["z"], "type": "int"}]}, record(("z", "int")), []),
    ({**record(), "fields": [{"name": "a", "aliases": ["z"], "type": "int"}]}, record(("y", "int")),
     ["a: has no default and is not written"]),
    (linked("long"), linked("int"), []),
    (linked("int"), linked("long"), ["value: int does not read long"]),
    (["null", record(("a", "int"))], record(("a", "long")), ["no branch of [null, record R] reads record R"]),
    (record(("a", ["null", record(("x", "int"), name="I")]), ("b", "I")), record(("a", record(name="I")), ("b", "I")),
     ["a: no branch of [null, record I] reads record I",
      "b: record I does not read record I (a.x: has no default and is not written)"]),
    ({"type": "long", "logicalType": "timestamp-micros"}, {"type": "long", "logicalType": "timestamp-millis"}, []),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
     {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, []),
    ("int", {"type": "int", "logicalType": "date"}, []),
)  # fmt: skip
