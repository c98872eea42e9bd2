"""Whether one Avro schema reads what another one writes (Java: ``SchemaCompatibility``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.schemas.encoding.avro_schema import NO_DEFAULT, AvroField, AvroSchema

_PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
})  # fmt: skip
"""A reader's type → the writer's types that it reads besides its own."""


@lru_cache(256)
def unreadable(reader: str, writer: str) -> tuple[str, ...]:
    """What the schema ``reader`` cannot read in data of the schema ``writer``: a sentence per path.

    Both are Avro JSON; a registry holds ``reader``. As in Java, logical types do not count, and two records, enums or
    fixed match if they have the same name without its namespace, or an alias.
    """
    comparison = _Comparison()
    comparison.compare(AvroSchema.parse(reader, checks_defaults=False), AvroSchema.parse(writer), "")
    return tuple(comparison.faults)


class _Comparison:
    """Compares a reader's schema with a writer's. ``faults``: a sentence for each path that cannot be read."""

    def __init__(self, verdicts: dict[tuple[str, str], bool] | None = None) -> None:
        """``verdicts``: whether a record reads another one, as far as earlier comparisons know; of a branch."""
        self.faults: list[str] = []
        self._is_of_branch = verdicts is not None
        self._verdicts: dict[tuple[str, str], bool] = {} if verdicts is None else verdicts
        self._compared: set[tuple[str, str]] = set()

    def compare(self, reader: AvroSchema, writer: AvroSchema, path: str) -> None:
        if writer.type == "union":
            for branch in writer.branches:
                self.compare(reader, branch, path)
        elif reader.type == "union":
            if not any(self._reads(branch, writer, path) for branch in reader.branches):
                self._fault(path, f"no branch of {reader} reads {writer}")
        elif reader.type != writer.type:
            if writer.type not in _PROMOTIONS.get(reader.type, ()):
                self._fault(path, f"{reader} does not read {writer}")
        elif reader.type == "array":
            self.compare(reader.items, writer.items, f"{path}[]")
        elif reader.type == "map":
            self.compare(reader.values, writer.values, f"{path}[]")
        elif reader.type in ("record", "enum", "fixed"):
            self._compare_named(reader, writer, path)

    def _compare_named(self, reader: AvroSchema, writer: AvroSchema, path: str) -> None:
        if not _is_called(reader, writer):
            self._fault(path, f"{reader} has another name than {writer}")
        elif reader.type == "fixed" and reader.size != writer.size:
            self._fault(path, f"{reader} has another size than {writer}")
        elif reader.type == "enum" and "default" not in reader.attributes:
            unknown = [each for each in writer.attributes["symbols"] if each not in reader.attributes["symbols"]]
            if unknown:
                self._fault(path, f"{reader} lacks {', '.join(unknown)}")
        elif reader.type == "record":
            self._compare_fields(reader, writer, path)

    def _compare_fields(self, reader: AvroSchema, writer: AvroSchema, path: str) -> None:
        pair = (reader.attributes["name"], writer.attributes["name"])
        if pair in self._compared:  # recursive, or its faults are noted
            return
        if self._is_of_branch and pair in self._verdicts:
            if not self._verdicts[pair]:
                self._fault(path, f"{reader} does not read {writer}")
            return
        self._compared.add(pair)
        self._verdicts.setdefault(pair, True)  # until it is compared, as in Java
        before = len(self.faults)
        written = {field.name: field for field in writer.fields}
        for field, attributes in zip(reader.fields, reader.attributes["fields"], strict=True):
            inner = f"{path}.{field.name}".removeprefix(".")
            source = _source(field, attributes.get("aliases", ()), written)
            if source is not None:
                self.compare(field.schema, source.schema, inner)
            elif field.default is NO_DEFAULT:
                self._fault(inner, "has no default and is not written")
        self._verdicts[pair] = len(self.faults) == before

    def _reads(self, reader: AvroSchema, writer: AvroSchema, path: str) -> bool:
        attempt = _Comparison(self._verdicts)
        attempt.compare(reader, writer, path)
        return not attempt.faults

    def _fault(self, path: str, problem: str) -> None:
        self.faults.append(f"{path}: {problem}" if path else problem)


def _source(field: AvroField, aliases: object, written: Mapping[str, AvroField]) -> AvroField | None:
    """The writer's field that is read into ``field``; None if the writer has no such field."""
    names = (field.name, *aliases) if isinstance(aliases, list) else (field.name,)
    return next((written[name] for name in names if name in written), None)


def _is_called(reader: AvroSchema, writer: AvroSchema) -> bool:
    name, written = reader.attributes["name"], writer.attributes["name"]
    if name.rpartition(".")[2] == written.rpartition(".")[2]:
        return True
    namespace = name.rpartition(".")[0]
    aliases = reader.attributes.get("aliases") or ()
    return written in [each if "." in each or not namespace else f"{namespace}.{each}" for each in aliases]
