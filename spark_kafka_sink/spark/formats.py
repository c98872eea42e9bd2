"""Planning of formats in Spark's driver: the types of columns, and responses that outlive a planning process.

``spark_kafka_sink.formats`` has the formats.
"""

from __future__ import annotations

import logging

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.format_options import FormatOptions
from spark_kafka_sink.formats.plan import FormatPlan
from spark_kafka_sink.formats.planning import FrameColumn, derives, plan_formats
from spark_kafka_sink.schema_registry.subjects import Side
from spark_kafka_sink.spark.avro_schema import derived_schema
from spark_kafka_sink.spark.commit_message import announce
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import EncodedFields, SchemaError

_plans: dict[object, FormatPlan] = {}
"""Of this process: Spark pickles each writer twice, and a query has a writer per micro-batch."""


def planned_formats(options: SinkOptions, fields: EncodedFields) -> FormatPlan:
    """Runs when Spark pickles a writer for its tasks. ``fields``: the encoded columns. Raises ``FormatError``."""
    assert options.formats is not None
    of = (options.formats, options.topic, tuple((side, field.json()) for side, field in fields.items()))
    if of not in _plans:
        _plans[of] = _planned(options.formats, options.topic, fields)
    return _plans[of]


def _planned(formats: FormatOptions, topic: str | None, fields: EncodedFields) -> FormatPlan:
    frame = {side: _frame_column(formats, side, field) for side, field in fields.items()}
    if formats.registry is None:
        announce(
            "no schema.registry.url: key and value are written as bare Avro or Protobuf, and readers must know their "
            "schema",
            logging.WARNING,
        )
        return plan_formats(formats, frame, topic, None)
    from spark_kafka_sink.schema_registry.client import SchemaRegistry

    return plan_formats(formats, frame, topic, SchemaRegistry(formats.registry, SystemClock()))


def _frame_column(formats: FormatOptions, side: Side, field: StructField) -> FrameColumn:
    try:
        # Readers of the type see neither the session's time zone nor large types.
        kind = to_arrow_type(field.dataType, timezone="UTC")
        derived = derived_schema(side.value, field.dataType, field.nullable) if derives(formats, side) else None
    except SchemaError as error:
        raise FormatError(str(error)) from error
    except PySparkException as error:
        raise FormatError(
            f"The column {side.value} of type {field.dataType.simpleString()} cannot be encoded: {error}"
        ) from error
    return FrameColumn(kind, field.nullable, derived)
