"""What planning decides about a write's formats. Picklable: Spark sends it to every task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from spark_kafka_sink.schemas.encoding.encoder import Encoder
from spark_kafka_sink.schemas.formats.format_options import ColumnFormat
from spark_kafka_sink.schemas.registry.java_names import SchemaIdPlace
from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema
from spark_kafka_sink.schemas.registry.subjects import Side


class SchemaUse(NamedTuple):
    """How rows of one subject are written. ``prefix``: in front of the encoded value. ``header``: value of the header
    that names the schema, None without one. ``registered`` None: without a registry.
    """

    encoder: Encoder
    prefix: bytes = b""
    header: bytes | None = None
    registered: RegisteredSchema | None = None

    def without_text(self) -> SchemaUse:
        """The same without the schema's text, for tasks, which need subject and id only."""
        registered = self.registered
        if registered is None:
            return self
        return self._replace(registered=registered._replace(schema=Schema(registered.schema.type, "")))


class GivenSchema(NamedTuple):
    """The schema that options give, or that is derived from the column; beside the registry's, found to be the same."""

    schema: Schema
    encoder: Encoder
    message_indexes: tuple[int, ...] = ()
    is_derived: bool = False


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the column key or value is encoded.

    ``kind``: of the column. ``record``: name of the record, for subjects; "" for none. ``given`` None:
    the registry's schema is taken. ``compared``: Avro JSON of the options, whose data the registry's schema must read.
    ``known``: subject → what the registry said in planning; without a registry the only key is "". ``identity``: a
    digest of what leads from a subject to its schema.
    """

    column: ColumnFormat
    kind: pa.DataType
    record: str = ""
    given: GivenSchema | None = None
    compared: str | None = None
    known: Mapping[str, SchemaUse] = field(default_factory=dict)
    identity: str = ""


class EarlierSchemas(NamedTuple):
    """The schemas that a committed batch was written with, where they are not the plan's: subject → schema, per column.

    ``fault``: why a replay cannot be encoded with them; None if it can.
    """

    uses: Mapping[Side, Mapping[str, SchemaUse]]
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class FormatPlan:
    """``columns``: the encoded ones. ``registry`` None: bare Avro or Protobuf. ``earlier``: query → the schemas of its
    last committed batch.
    """

    columns: Mapping[Side, ColumnPlan]
    registry: RegistryOptions | None = None
    earlier: Mapping[str, EarlierSchemas] = field(default_factory=dict)

    @property
    def has_headers(self) -> bool:
        """Whether headers name the schemas of some column."""
        registry = self.registry
        if registry is None:
            return False
        return any(registry.side(side).schema_id_place is SchemaIdPlace.HEADER for side in self.columns)
