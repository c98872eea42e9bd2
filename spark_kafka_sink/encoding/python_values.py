"""Python values that fastavro and Google's protobuf would round, cut or shift: refused, as columns refuse them by type.

fastavro takes a datetime without time zone as local time, protobuf as UTC; both write a float of 1e300 as infinity.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from spark_kafka_sink.encoding.avro_schema import AvroSchema
from spark_kafka_sink.encoding.descriptors import is_map_entry, is_repeated

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_BITS: Final = {"int": 32, "long": 64}


class _Check(Protocol):
    @property
    def idle(self) -> bool:
        """Whether ``check`` refuses nothing."""

    def takes(self, value: Any) -> bool:
        """Whether fastavro may write the value as this schema, by its Python type."""

    def check(self, value: Any, path: str) -> None:
        """Raises ``ValueError``."""


class AvroCheck:
    """Of records by one schema. Values that fastavro refuses by itself are not its concern."""

    def __init__(self, schema: AvroSchema) -> None:
        self._records: dict[str, _Record] = {}
        self._root = self._of(schema)

    def check(self, value: Any) -> None:
        """Raises ``ValueError`` with path and value."""
        self._root.check(value, "")

    def _of(self, schema: AvroSchema) -> _Check:
        match schema.type:
            case "record":
                return self._record(schema)
            case "array":
                return _Items(self._of(schema.items))
            case "map":
                return _Entries(self._of(schema.values))
            case "union":
                names = [str(branch.attributes.get("name", branch.type)) for branch in schema.branches]
                return _Union(tuple(zip(names, map(self._of, schema.branches), strict=True)))
            case "float" | "double" | "int" | "long":
                return _Number(str(schema), schema.type, schema.logical)
        return _Other()

    def _record(self, schema: AvroSchema) -> _Record:
        name = str(schema.attributes["name"])
        if name not in self._records:
            made = self._records[name] = _Record(frozenset(each.name for each in schema.fields), {})
            checks = {each.name: self._of(each.schema) for each in schema.fields}  # which may name the record
            made.checks.update((name, each) for name, each in checks.items() if not each.idle)
        return self._records[name]


@dataclass(frozen=True, slots=True)
class _Other:
    """What is written as it is, or refused."""

    idle: ClassVar = True

    def takes(self, value: Any) -> bool:
        return False

    def check(self, value: Any, path: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class _Number:
    schema: str
    type: str
    logical: str

    @property
    def idle(self) -> bool:
        return self.type in _BITS and not self.logical

    def takes(self, value: Any) -> bool:
        if isinstance(value, datetime) and "timestamp" in self.logical:
            return True
        if isinstance(value, date | time):
            return self.logical.startswith("date" if isinstance(value, date) else "time-")
        if self.type not in _BITS:
            return isinstance(value, Real)
        return isinstance(value, Integral) and int(value).bit_length() < _BITS[self.type]

    def check(self, value: Any, path: str) -> None:
        if isinstance(value, datetime):
            if self.logical == "date":
                raise _refusal(path, value, f"has a time of day, which {self.schema} cannot hold: give its date()")
            if not self.logical.startswith("local-"):
                _refuse_without_zone(value, path, self.schema)
            elif value.tzinfo is not None:
                raise _refusal(path, value, f"has a time zone, which {self.schema} cannot hold: leave it out")
        elif isinstance(value, time) and self.logical == "time-millis" and value.microsecond % 1000:
            raise _refusal(path, value, f"has microseconds, which {self.schema} cannot hold")
        elif self.type not in _BITS:
            _refuse_rounded(value, path, self.type)


@dataclass(frozen=True, slots=True)
class _Record:
    """``checks``: of the fields that need one."""

    names: frozenset[str]
    checks: dict[str, _Check] = field(repr=False)
    idle: ClassVar = False

    def takes(self, value: Any) -> bool:
        return isinstance(value, Mapping) and value.keys() <= self.names | {"-type"}

    def check(self, value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            for name, each in self.checks.items():
                if name in value:
                    each.check(value[name], f"{path}.{name}" if path else name)


@dataclass(frozen=True, slots=True)
class _Items:
    item: _Check

    @property
    def idle(self) -> bool:
        return self.item.idle

    def takes(self, value: Any) -> bool:
        return isinstance(value, list | tuple)

    def check(self, value: Any, path: str) -> None:
        if isinstance(value, list | tuple):
            for each in value:
                self.item.check(each, f"{path}[]")


@dataclass(frozen=True, slots=True)
class _Entries:
    value: _Check

    @property
    def idle(self) -> bool:
        return self.value.idle

    def takes(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def check(self, value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            for each in value.values():
                self.value.check(each, f"{path}.value")


@dataclass(frozen=True, slots=True)
class _Union:
    """``branches``: by the names that fastavro's tuples have."""

    branches: tuple[tuple[str, _Check], ...]

    @property
    def idle(self) -> bool:
        return all(each.idle for _, each in self.branches)

    def takes(self, value: Any) -> bool:
        return False  # no branch is a union

    def check(self, value: Any, path: str) -> None:
        """By the branch that fastavro chooses: the first, but double rather than float; of records, one that fits."""
        branches: Iterable[tuple[str, _Check]] = self.branches
        if isinstance(value, tuple) and len(value) == 2:
            chosen, value = value
            branches = [each for each in branches if each[0] == chosen]
        takers = [each for _, each in branches if each.takes(value)]
        if takers and isinstance(takers[0], _Number) and takers[0].schema == "float":
            takers.sort(key=lambda each: not (isinstance(each, _Number) and each.schema == "double"))
        for place, each in enumerate(takers, 1):
            try:
                each.check(value, path)
            except ValueError:
                if place == len(takers) or not isinstance(value, Mapping):
                    raise
            else:
                break


def check_message(descriptor: Descriptor, values: Mapping[str, Any], path: str = "") -> None:
    """``values``: as the constructor of the message takes them. Raises ``ValueError`` with path and value."""
    for name, value in values.items():
        declared = descriptor.fields_by_name.get(name)
        if declared is None:  # the constructor refuses it
            continue
        here = f"{path}.{name}" if path else name
        if declared.message_type is not None and is_map_entry(declared.message_type):
            if isinstance(value, Mapping):
                for each in value.values():
                    _check_field(declared.message_type.fields_by_name["value"], each, f"{here}.value")
        elif not is_repeated(declared):
            _check_field(declared, value, here)
        elif isinstance(value, list | tuple):
            for each in value:
                _check_field(declared, each, f"{here}[]")


def _check_field(declared: FieldDescriptor, value: Any, path: str) -> None:
    if declared.type in (declared.TYPE_FLOAT, declared.TYPE_DOUBLE):
        _refuse_rounded(value, path, "float" if declared.type == declared.TYPE_FLOAT else "double")
    elif declared.message_type is not None and isinstance(value, Mapping):
        check_message(declared.message_type, value, path)
    elif declared.message_type is not None and isinstance(value, datetime):
        _refuse_without_zone(value, path, declared.message_type.full_name)


def _refuse_without_zone(value: datetime, path: str, schema: str) -> None:
    if value.tzinfo is None:
        raise _refusal(path, value, f"has no time zone, so {schema} cannot hold it: give one, as tzinfo=UTC")


def _refuse_rounded(value: Any, path: str, schema: str) -> None:
    """Of floats only those beyond a float's range: each Python float has more digits than one."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return
    try:
        held = struct.unpack("<f", struct.pack("<f", float(value)))[0] if schema == "float" else float(value)
    except OverflowError:
        raise _refusal(path, value, f"is too large for {schema}") from None
    if isinstance(value, Integral) and held != value:
        raise _refusal(path, value, f"has more digits than {schema} holds")


def _refusal(path: str, value: object, problem: str) -> ValueError:
    shown = value.isoformat() if isinstance(value, date | time) else f"{value!r:.80}"
    return ValueError(f"{path}: {shown} {problem}" if path else f"{shown} {problem}")
