"""The options ``keyFormat``, ``valueFormat`` and those of their schemas. Reads no files and asks no registry."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import OneOf, Option, OptionKind
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions, registry_names
from spark_kafka_sink.schemas.registry.schema import Side


class Format(Enum):
    """The values of ``keyFormat`` and ``valueFormat``."""

    RAW = "raw"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"


def _options_of(side: str) -> tuple[Option, ...]:
    formats = OneOf(tuple(each.value for each in Format))
    return (
        Option(f"{side}Format", OptionKind.STRING, "raw", "medium",
               f"Encoding of the column {side}. raw: string or binary, written as it is. avro: a struct, or any type "
               "if the schema is not a record. protobuf: a struct. json: string or binary made by to_json, to which "
               "the sink adds the schema id.", formats),
        Option(f"{side}Schema", OptionKind.STRING, None, "medium",
               f"Schema for the column {side}: Avro JSON, or JSON Schema. Default for avro: the schema that Spark's "
               "to_avro derives from the column."),
        Option(f"{side}SchemaFile", OptionKind.STRING, None, "medium", f"File with {side}Schema, on the driver."),
        Option(f"{side}DescriptorFile", OptionKind.STRING, None, "medium",
               "File with a Protobuf descriptor set, on the driver, as for Spark's to_protobuf (protoc "
               "--include_imports --descriptor_set_out)."),
        Option(f"{side}Message", OptionKind.STRING, None, "medium",
               f"Full name of the Protobuf message for the column {side}."),
    )  # fmt: skip


FORMAT_OPTIONS: Final = (*_options_of("key"), *_options_of("value"))


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How the column ``key`` or ``value`` is encoded. At most one of ``schema`` and ``schema_file`` is given."""

    side: Side
    format: Format = Format.RAW
    schema: str | None = None
    schema_file: str | None = None
    descriptor_file: str | None = None
    message: str | None = None

    @property
    def is_raw(self) -> bool:
        return self.format is Format.RAW

    @property
    def has_schema(self) -> bool:
        """Whether options give the schema."""
        return not (self.schema is self.schema_file is self.descriptor_file is None)

    def option(self, name: str) -> str:
        """``Schema`` → ``valueSchema``."""
        return self.side.value + name


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The formats of key and value, at least one of which is encoded.

    Without ``registry``, values are bare Avro or Protobuf, which name no schema.
    """

    key: ColumnFormat
    value: ColumnFormat
    registry: RegistryOptions | None = None

    @classmethod
    def parse(
        cls,
        own: Mapping[str, Any],
        options: Mapping[str, str],
        faults: list[str],
        producer: ProducerConfig | None = None,
    ) -> FormatOptions | None:
        """None if both formats are raw. Faults are added to ``faults``.

        ``own``: the parsed options of ``FORMAT_OPTIONS``, by their names in lower case. ``options``: all options,
        among them the registry's. ``producer``: as for ``RegistryOptions.parse``.
        """
        key, value = _column(Side.KEY, own), _column(Side.VALUE, own)
        faults += [*_misplaced(key, own), *_misplaced(value, own)]
        encoded = [column for column in (key, value) if not column.is_raw]
        if not encoded:
            if names := registry_names(options):
                faults.append(f"{', '.join(names)}: only with keyFormat or valueFormat avro, protobuf or json.")
            return None
        before = len(faults)
        registry = RegistryOptions.parse(options, faults, producer, [column.side for column in encoded])
        if len(faults) == before:
            for column in encoded:
                faults += _lacking(column, registry)
        return cls(key, value, registry)

    def column(self, side: Side) -> ColumnFormat:
        return self.key if side is Side.KEY else self.value


def _column(side: Side, own: Mapping[str, Any]) -> ColumnFormat:
    def of(name: str) -> Any:
        return own.get(side.value + name)

    return ColumnFormat(
        side, Format(of("format") or "raw"), of("schema"), of("schemafile"), of("descriptorfile"), of("message")
    )


def _misplaced(column: ColumnFormat, own: Mapping[str, Any]) -> list[str]:
    """Faults: options of a format that is not the column's, and two options that set the same thing."""
    faults = []
    schema = [column.option(name) for name in ("Schema", "SchemaFile") if column.option(name).lower() in own]
    message = [column.option(name) for name in ("DescriptorFile", "Message") if column.option(name).lower() in own]
    if schema and column.format not in (Format.AVRO, Format.JSON):
        faults.append(f"{', '.join(schema)}: only with {column.option('Format')}=avro or json.")
    elif len(schema) > 1:
        faults.append(f"{' and '.join(schema)} set the same thing: leave one of them out.")
    if message and column.format is not Format.PROTOBUF:
        faults.append(f"{', '.join(message)}: only with {column.option('Format')}=protobuf.")
    elif column.descriptor_file is not None and column.message is None:
        faults.append(f"{column.option('DescriptorFile')} needs {column.option('Message')}, the message in it.")
    return faults


def _lacking(column: ColumnFormat, registry: RegistryOptions | None) -> list[str]:
    """Faults: no option gives a schema, and no registry although the format needs one."""
    form = f"{column.option('Format')}={column.format.value}"
    if column.format is Format.JSON and registry is None:
        return [f"{form} needs schema.registry.url; without a registry {column.option('Format')}=raw writes the same."]
    if (
        column.has_schema
        or column.format is Format.AVRO
        or (registry is not None and registry.side(column.side).takes_registered)
    ):
        return []
    given = "Schema" if column.format is Format.JSON else "DescriptorFile"
    and_message = f" and {column.option('Message')}" if column.format is Format.PROTOBUF else ""
    return [
        f"{form} needs a schema: give {column.option(given)}{and_message}, or a registry with use.latest.version or "
        "use.schema.id."
    ]


class FormatError(KafkaError, pickle.PickleError):
    """A column cannot be encoded as the options say. The message names the column, the schema and what to do.

    It is a ``PickleError`` because planning runs while Spark pickles a writer, and Spark passes only such errors on
    unchanged.
    """
