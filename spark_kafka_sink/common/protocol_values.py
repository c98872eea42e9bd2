"""What a field of Kafka's protocol can hold, for the calls that take a value for one.

A value that no request can carry is an error where it is given, because later it would fail a request with other
callers' data.
"""

from __future__ import annotations

import operator
import re
from typing import Final

LARGEST_INT16: Final = 2**15 - 1
LARGEST_INT32: Final = 2**31 - 1
LARGEST_INT64: Final = 2**63 - 1

_LONGEST_STRING: Final = LARGEST_INT16
"""In bytes. Brokers refuse longer strings also in flexible versions, although their encoding has no limit."""


TOPIC_RULE: Final = "at most 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'"
_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether brokers accept a topic of this name, by ``TOPIC_RULE`` (Java: ``Topic.validate``)."""
    return _TOPIC.fullmatch(name) is not None


def text_fault(value: object) -> str | None:
    """Why the protocol cannot carry ``value`` as a string, in words that follow its name (``must be …``); else None."""
    if not isinstance(value, str):
        return f"must be a str, not {type(value).__name__}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        return f"has {value[error.start]!a} at index {error.start}, a lone surrogate that UTF-8 cannot encode"
    if size > _LONGEST_STRING:
        return f"has {size} bytes in UTF-8, more than the {_LONGEST_STRING} that Kafka allows"
    return None


def check_text(name: str, value: object) -> None:
    """Raises ``ValueError`` unless ``value`` is a string that the protocol can carry."""
    if (fault := text_fault(value)) is not None:
        raise ValueError(f"Invalid {name}: it {fault}.")


def check_number(name: str, value: object, low: int, high: int) -> None:
    """Raises ``ValueError`` unless ``value`` is an integer from ``low`` to ``high``; a bool is refused."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]  # a TypeError is what this asks for
    except TypeError:
        raise ValueError(f"Invalid {name}: it must be an int, not {type(value).__name__}.") from None
    if not low <= number <= high:
        raise ValueError(f"Invalid {name}: it must be from {low} to {high}, but is {number}.")
