"""The options ``keyFormat`` and ``valueFormat``, and the options of their schemas. Parsing reads no files and asks no
registry.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import OneOf, Option, OptionKind, needing
from spark_kafka_sink.common.config.providers import file_fault
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.schemas.registry.glue import GlueOptions
from spark_kafka_sink.schemas.registry.registry import RegistryOptions
from spark_kafka_sink.schemas.registry.registry_options import ConfluentOptions
from spark_kafka_sink.schemas.registry.schema import Side


class Format(Enum):
    """The values of ``keyFormat`` and ``valueFormat``. The names of all but raw are a registry's types of schemas."""

    RAW = "raw"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"


class FormatRules(NamedTuple):
    """The requirements of a format on columns and options."""

    takes: Literal["bytes", "struct", "any"]
    """The types of columns that may be encoded. Whether a column fits a schema, its encoder decides."""
    column: str
    """The requirement on the column, in the table of options."""
    schema: tuple[str, ...] = ()
    """The options that give a schema, without key or value in front of their names."""
    record: str = ""
    """The source of the record's name for a subject name strategy: an option, and what it must have."""


_TEXTS: Final = ("Schema", "SchemaFile")
_MESSAGE: Final = ("DescriptorFile", "Message")

RULES: Final[Mapping[Format, FormatRules]] = MappingProxyType({
    Format.RAW: FormatRules("bytes", "string or binary, written as it is"),
    Format.AVRO: FormatRules(
        "any", "a struct, or any type if the schema is not a record", _TEXTS,
        "{}Schema, the schema of a record, or use the strategy topic. (A nullable struct derives a union.)",
    ),
    Format.PROTOBUF: FormatRules(
        "struct", "a struct", _MESSAGE, "{}Message, its full name, or use the strategy topic."
    ),
    Format.JSON: FormatRules(
        "bytes", "string or binary made by to_json, to which the sink adds the schema id", _TEXTS,
        "{}Schema, a schema with a title, or use the strategy topic.",
    ),
})  # fmt: skip


def _options_of(side: str) -> tuple[Option, ...]:
    columns = " ".join(f"{each.value}: {rules.column}." for each, rules in RULES.items())
    return (
        Option(f"{side}Format", OptionKind.STRING, "raw", "medium", f"Encoding of the column. {columns}",
               OneOf(tuple(format_.value for format_ in RULES))),
        Option(f"{side}Schema", OptionKind.STRING, None, "medium",
               "Schema for the column: Avro JSON, or JSON Schema. Default for avro: the schema that Spark's to_avro "
               "derives from the column."),
        Option(f"{side}SchemaFile", OptionKind.STRING, None, "medium", "File with the schema, on the driver."),
        Option(f"{side}DescriptorFile", OptionKind.STRING, None, "medium",
               "File with a Protobuf descriptor set, on the driver (protoc --include_imports --descriptor_set_out)."),
        Option(f"{side}Message", OptionKind.STRING, None, "medium",
               "Full name of the Protobuf message."),
    )  # fmt: skip


REGISTRIES: Final[Mapping[str, type[RegistryOptions]]] = MappingProxyType(
    {"confluent": ConfluentOptions, "glue": GlueOptions}
)
"""The kinds of registries, by the values of ``schemaRegistry``."""
_KIND: Final = "schemaRegistry"

FORMAT_OPTIONS: Final = (
    *_options_of("key"), *_options_of("value"),
    Option(_KIND, OptionKind.STRING, "confluent", "medium",
           "confluent: the registry at schema.registry.url, if given. glue: [AWS Glue](#the-options-of-aws-glue).",
           OneOf(tuple(REGISTRIES))),
)  # fmt: skip


def registry_kind(options: Mapping[str, str]) -> type[RegistryOptions]:
    """The kind of registry that options, with names in lower case, choose. Confluent's for a value that is none."""
    return REGISTRIES.get(options.get(_KIND.lower(), "").strip().lower(), ConfluentOptions)


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """The format of the column ``key`` or ``value``. At most one of ``schema`` and ``schema_file`` is given."""

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
        """The option's name for this column, such as ``valueSchema`` for ``Schema``."""
        return self.side.value + name

    @property
    def origin(self) -> str:
        """The name in errors of a schema that does not come from the registry."""
        for name, path in (("DescriptorFile", self.descriptor_file), ("SchemaFile", self.schema_file)):
            if path is not None:
                return f"{self.option(name)} {path}"
        return "the schema derived from it" if self.schema is None else self.option("Schema")

    def read(self, name: str, path: str) -> bytes:
        """Reads the file that an option names. Raises ``FormatError``."""
        option = f"{self.option(name)} {path}"
        if (fault := file_fault(path)) is not None:
            raise FormatError(f"{option} {fault}.")
        try:
            if Path(path).exists() and not Path(path).is_file():
                raise FormatError(f"{option} is not a regular file.")  # a pipe would block for ever
            return Path(path).read_bytes()
        except OSError as error:
            raise FormatError(f"{option} cannot be read on the driver: {error.strerror or error}.") from error


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The formats of key and value, at least one of which is encoded.

    Without ``registry``, values are bare Avro or Protobuf, which do not name their schema.
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
        """The formats of a write; None if both are raw. Faults are added to ``faults``.

        ``own``: the parsed options of ``FORMAT_OPTIONS``, by their names in lower case. ``options``: all options,
        including the registry's. ``producer``: as for ``RegistryOptions.parse``.
        """
        key, value = _column(Side.KEY, own), _column(Side.VALUE, own)
        faults += [*_find_misplaced(key, own), *_find_misplaced(value, own)]
        encoded, kind = [column for column in (key, value) if not column.is_raw], registry_kind(options)
        if not encoded:
            if names := sorted(name for name in options if kind.owns(name) or name == _KIND.lower()):
                faults.append(needing(names, "keyFormat or valueFormat with avro, protobuf or json"))
            return None
        before = len(faults)
        registry = kind.parse(options, faults, producer, {each.side: each.format.name for each in encoded})
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


def _find_misplaced(column: ColumnFormat, own: Mapping[str, Any]) -> list[str]:
    """Faults: options of a format that is not the column's, and two options that set the same thing."""
    faults = []
    for names in (_TEXTS, _MESSAGE):
        given = [option for name in names if (option := column.option(name)).lower() in own]
        formats = [each.value for each, rules in RULES.items() if rules.schema == names]
        if given and column.format.value not in formats:
            faults.append(needing(given, f"{column.option('Format')}={' or '.join(formats)}"))
        elif names == _TEXTS and len(given) > 1:
            faults.append(f"{' and '.join(given)} set the same thing: leave one of them out.")
        elif names == _MESSAGE and column.descriptor_file is not None and column.message is None:
            faults.append(f"{column.option('DescriptorFile')} needs {column.option('Message')}, the message in it.")
    return faults


def _lacking(column: ColumnFormat, registry: RegistryOptions | None) -> list[str]:
    """Faults: no option gives a schema, and no registry although the format needs one."""
    form = f"{column.option('Format')}={column.format.value}"
    if column.format is Format.JSON and registry is None:
        return [f"{form} needs schema.registry.url; without a registry {column.option('Format')}=raw writes the same."]
    is_registered = registry is not None and registry.side(column.side).takes_registered
    if column.has_schema or column.format is Format.AVRO or is_registered:
        return []
    names = RULES[column.format].schema
    asked = " and ".join(map(column.option, names if names == _MESSAGE else names[:1]))
    held = ", or a registry with use.latest.version or use.schema.id"
    return [f"{form} needs a schema: give {asked}{'' if isinstance(registry, GlueOptions) else held}."]


class FormatError(KafkaError, pickle.PickleError):
    """A column cannot be encoded as the options say. The message names the column, the schema and what to do.

    It is a ``PickleError`` because planning runs while Spark pickles a writer, and Spark passes only such errors on
    unchanged.
    """
