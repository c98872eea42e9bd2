"""Dataclasses and named tuples as JSON and back, by the types of their fields, because foreign data is not unpickled.

JSON has a dataclass as an object and a named tuple as a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

from spark_kafka_sink.common.task_figures import finite

UNREADABLE: Final = (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)
"""The errors that ``parse`` raises for JSON of anything else."""


def plain(value: Enum | UUID | bytes) -> str:
    """The ``default`` of ``json.dumps``."""
    return value.name if isinstance(value, Enum) else str(value) if isinstance(value, UUID) else value.hex()


def parse(kind: Any, given: Any, types: Mapping[str, Any] | None = None) -> Any:
    """The value of a type that is ``given`` as JSON. ``types``: the types of its fields, if the class cannot name
    them."""
    origin, parts = get_origin(kind), get_args(kind)
    if type(None) in parts:
        return None if given is None else parse(parts[0], given)
    if origin is UnionType:  # a number or a UUID, which JSON has as text
        return parse(parts[isinstance(given, str)], given)
    if origin is tuple:
        kinds = parts[:1] * len(given) if parts[-1] is ... else parts
        return tuple(parse(*each) for each in zip(kinds, given, strict=True))
    if hasattr(kind, "_fields"):
        return kind(*(parse(*each) for each in zip(_types_of_fields(kind).values(), given, strict=True)))
    if hasattr(kind, "__dataclass_fields__"):
        types = _types_of_fields(kind) if types is None else types
        return kind(**{name: parse(types[name], value) for name, value in given.items()})
    if issubclass(kind, Enum):
        return kind[given]
    if kind in (UUID, bytes):
        return UUID(given) if kind is UUID else bytes.fromhex(given)
    if kind is float:
        return finite(float(given))
    if type(given) is not kind or (kind is int and abs(given) >> 64):
        raise TypeError(f"{given!a:.100} is no {kind.__name__}")
    return given


_types_of_fields = cache(get_type_hints)
