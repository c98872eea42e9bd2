"""One value of one option: text or native in, native out (Java: ``ConfigDef.parseType``)."""

from __future__ import annotations

import re

from spark_kafka_sink.config.option import Kind, Matching, OneOf, Option, Range

Value = bool | int | float | str | tuple[str, ...] | None

_INTEGER = re.compile(r"[+-]?[0-9]+")
_BOOLEANS = {"true": True, "false": False}
_WHOLE_NUMBERS = (Kind.INT, Kind.LONG, Kind.SHORT)


class BadValueError(ValueError):
    """The value is none the option takes."""


def convert(option: Option, value: object) -> Value:
    """The value as ``option``'s type, blanks around texts removed. Raises BadValueError.

    Whole numbers and booleans come as themselves or as text, lists as text with commas or as a list.
    """
    if isinstance(value, str):
        value = value.strip()
    if option.kind in _WHOLE_NUMBERS:
        return _whole_number(option, value)
    if option.kind is Kind.BOOLEAN:
        return _boolean(value)
    if option.kind is Kind.LIST:
        return _list(value)
    return _text(option, value)


def _whole_number(option: Option, value: object) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadValueError
    if isinstance(option.valid, Range) and not option.valid.allows(value, option.kind):
        raise BadValueError
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    raise BadValueError


def _list(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",")) if value else ()
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(item.strip() for item in value)
    raise BadValueError


def _text(option: Option, value: object) -> str:
    # acks=1 and client.id=7 are written as numbers; a bool as a text is a slip.
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise BadValueError
    text = str(value)
    if isinstance(option.valid, OneOf):
        found = option.valid.find(text)
        if found is None:
            raise BadValueError
        return found
    if isinstance(option.valid, Matching) and not re.fullmatch(option.valid.pattern, text):
        raise BadValueError
    return text
