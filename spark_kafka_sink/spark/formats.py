"""Planning of formats in Spark's driver: the types of columns, and responses that outlive a planning process.

``spark_kafka_sink.formats`` has the formats.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.exactly_once.values import Entry
from spark_kafka_sink.formats.errors import FormatError
from spark_kafka_sink.formats.format_options import FormatOptions
from spark_kafka_sink.formats.kept_registry import KeptRegistry
from spark_kafka_sink.formats.later_planning import earlier_schemas, with_asked
from spark_kafka_sink.formats.plan import EarlierSchemas, FormatPlan
from spark_kafka_sink.formats.planning import FrameColumn, derives, plan_formats
from spark_kafka_sink.schema_registry.registry_options import RegistryOptions
from spark_kafka_sink.schema_registry.responses import ResponseFiles
from spark_kafka_sink.schema_registry.subjects import Side
from spark_kafka_sink.spark.avro_schema import derived_schema
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, announce
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import EncodedFields, SchemaError

_BARE = "no schema.registry.url: key and value are written as bare Avro or Protobuf, and readers must know their schema"

# Of this process: Spark pickles each writer twice, and a query has a writer per micro-batch.
_plans: dict[object, FormatPlan] = {}
_earlier: dict[object, EarlierSchemas | None] = {}


def planned_formats(options: SinkOptions, fields: EncodedFields) -> FormatPlan:
    """Runs when Spark pickles a writer for its tasks. Raises ``FormatError``."""
    formats = options.formats
    assert formats is not None
    of = (formats, options.topic, tuple((side, field.json()) for side, field in fields.items()))
    if of not in _plans:
        frame = {side: _frame_column(formats, side, field) for side, field in fields.items()}
        registry = None if formats.registry is None else _kept_registry(formats.registry)
        if registry is None:
            announce(_BARE, logging.WARNING)
        _plans[of] = plan_formats(formats, frame, options.topic, registry)
    plan = _plans[of]
    if options.topic is None and plan.registry is not None:
        plan = _plans[of] = with_asked(plan, _kept_registry(plan.registry))
    return plan


def with_earlier_schemas(plan: FormatPlan, entries: Mapping[str, Entry]) -> FormatPlan:
    """For replays of the batches that the ledger's entries name."""
    if plan.registry is None:
        return plan
    registry = _kept_registry(plan.registry)
    earlier = {}
    columns = tuple((column.identity, column.kind) for column in plan.columns.values())
    for query, entry in entries.items():
        of = (plan.registry, columns, entry.schemas)
        if of not in _earlier:
            ids = [(Side(side), subject, schema_id) for side, subject, schema_id in entry.schemas]
            _earlier[of] = earlier_schemas(plan, ids, registry)
        if (found := _earlier[of]) is not None:
            earlier[query] = found
    return replace(plan, earlier=earlier)


def keep_asked_schemas(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """In commit: what tasks asked the registry for is known to later planning processes."""
    schemas = [each for message in messages if isinstance(message, KafkaCommitMessage) for each in message.schemas]
    if options.formats is not None and options.formats.registry is not None:
        _kept_registry(options.formats.registry).keep_asked(schemas)


def _kept_registry(options: RegistryOptions) -> KeptRegistry:
    from spark_kafka_sink.schema_registry.client import SchemaRegistry

    clock = SystemClock()
    return KeptRegistry(SchemaRegistry(options, clock), options, ResponseFiles(clock), _application())


def _application() -> str:
    """Spark tells a planning process no application id, but a folder that is the driver's own and new in each run."""
    return SparkFiles._root_directory or uuid.uuid4().hex


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
    return FrameColumn(kind, derived)
