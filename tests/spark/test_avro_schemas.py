"""Which texts are Avro schemas, and of what type, against Avro's own parser in Spark's jars."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError

pytestmark = pytest.mark.jvm

one = st.sampled_from
PRIMITIVES = one(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMES = one(("A", "B", "n.A", "n.m.B", "ä", "record", ".A", "A", "B"))
ODD = one((None, 3, 1.5, True, "", "1a", "a-b", "a..b", "n.int", "int", [], {}, ["A"], 2**31, "NaN", {"a": 1}))
ATTRIBUTES = {
    "doc": one(("x", "y")), "aliases": st.lists(NAMES, max_size=1), "namespace": one(("n", "", "n.", ".")),
    "logicalType": one(("date", "decimal", "uuid", "duration", "timestamp-micros", "other")),
    "precision": one((4, 40, "4")), "scale": one((0, 2, 50)),
}  # fmt: skip
COMMAS = one((", ", ", ", ', // a "b"\n', "/* , */, ", ",/**/", ", //", ", /* x"))
IS_TAKEN_HERE = re.compile("Undefined schema|Schema fields not set yet|Invalid default")
"""What docs/encoding.md lists: names with a dot in front, or of the type around them, and wrong defaults."""


def node(kind, **attributes):
    return st.fixed_dictionaries({"type": st.just(kind), **attributes}, optional=ATTRIBUTES)


def nested(inner):
    default = {"default": ODD | one((1, "x", "A"))}
    fields = st.lists(st.fixed_dictionaries({"name": one("abcdef"), "type": inner}, optional=default), max_size=3)
    records = [node("record", name=NAMES, fields=fields)] * 3
    return st.one_of(st.lists(inner, max_size=3), node("array", items=inner), node("map", values=inner), *records)


PLAIN = st.one_of(
    PRIMITIVES, NAMES, PRIMITIVES.flatmap(node), NAMES.flatmap(node), node("fixed", name=NAMES, size=one((0, 12, 16))),
    node("enum", name=NAMES, symbols=st.lists(one(("A", "ä", "_1")), max_size=2)), node("fixed", name=NAMES, size=ODD),
    node("enum", name=ODD, symbols=ODD), node("record", name=ODD, fields=ODD), node("array"),
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.recursive(PLAIN, nested, max_leaves=12), COMMAS)
def test_java_takes_the_same_texts_as_the_same_schemas(spark, schema, comma):
    text = json.dumps(schema, ensure_ascii=False).replace(", ", comma, 1)
    try:
        printed, refusal = spark.sparkContext._jvm.org.apache.avro.Schema.Parser().parse(text).toString(), ""
    except (Py4JJavaError, CapturedException) as error:
        printed, refusal = None, str(error)
    read = None
    with suppress(InvalidSchemaError):
        read = form(AvroSchema.parse(text))
    if read is None or not IS_TAKEN_HERE.search(refusal):
        assert read == (printed and form(AvroSchema.parse(printed))), refusal or printed


def form(schema, outer=()):
    """What an encoder and a reader see of a schema."""
    name = schema.attributes.get("name")
    if name in outer:
        return name
    outer = (*outer, name) if name else outer
    inner = [form(branch, outer) for branch in schema.branches]
    if schema.type in ("array", "map"):
        inner = form(schema.items if schema.type == "array" else schema.values, outer)
    if schema.type == "record":
        inner = [(field.name, form(field.schema, outer), repr(field.default)) for field in schema.fields]
    return str(schema), schema.logical, schema.attributes.get("symbols"), inner
