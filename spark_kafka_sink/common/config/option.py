"""One option: its name, type, default and valid values, and how its value is parsed. ``ConfigBuilder`` has many."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Password:
    """A secret value, which ``repr`` and ``str`` hide, but a pickle holds (Java: ``types.Password``)."""

    value: str

    def __repr__(self) -> str:
        return "[hidden]"


_LOGIN = re.compile(r"//.*@", re.DOTALL)


def without_secrets(url: str) -> str:
    """A URL without user, password, query and fragment; "" for one that cannot be parsed, as a peer may send. If a text
    has several URLs, only the end of the last one is left."""
    try:
        urlsplit(url)
    except ValueError:
        return ""
    return re.split("[?#]", _LOGIN.sub("//", url))[0]


class Url(str):
    """A URL that may hold user and password. ``repr`` leaves them out, even in the ``repr`` of all options."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(without_secrets(self))


Value = bool | int | float | str | Password | tuple[str, ...] | None

_TRIMMED = "".join(map(chr, range(0x21)))
"""The characters that Java's ``String.trim`` takes off both ends."""

_LARGEST = {"int": 2**31 - 1, "long": 2**63 - 1, "short": 2**15 - 1}
_INTEGER = re.compile(r"[+-]?[0-9]+")
BOOLEANS = {"true": True, "false": False}


class OptionKind(Enum):
    """Kafka's types of options (Java: ``ConfigDef.Type``)."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    SHORT = "short"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"

    @property
    def is_integer(self) -> bool:
        return self.value in _LARGEST


BOOLEAN, INT, LONG, SHORT, DOUBLE, STRING, LIST, CLASS, PASSWORD = OptionKind


class Status(Enum):
    """The ways in which this package treats an option."""

    SUPPORTED = "supported"
    NO_EFFECT = "accepted, without effect"
    JVM_ONLY = "refused: needs a JVM"
    NOT_YET = "refused: not supported yet"


class BadValueError(ValueError):
    """An option does not take a value. The text follows the option's name: ``must be …, but is …``."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high`` (default: the largest of the type), and the value ``besides``."""

    low: float
    high: float | None = None
    besides: int | None = None

    def allows(self, value: float, kind: OptionKind) -> bool:
        high = _LARGEST.get(kind.value, math.inf) if self.high is None else self.high
        return self.low <= value <= high or value == self.besides

    def __str__(self) -> str:
        text = f"of at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
        return text if self.besides is None else f"{text}, or {self.besides}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of ``values``, given in upper or lower case, and parsed as it is spelt here."""

    values: tuple[str, ...]

    def find(self, text: str) -> str | None:
        """The value that matches ``text``."""
        return next((value for value in self.values if value.lower() == text.lower()), None)

    def __str__(self) -> str:
        return f"one of {', '.join(self.values)}" if len(self.values) > 1 else self.values[0]


@dataclass(frozen=True, slots=True)
class Matching:
    """A string that matches ``pattern``, which ``words`` describe to users."""

    pattern: str
    words: str

    def __str__(self) -> str:
        return self.words


AT_LEAST_0 = Range(0)
AT_LEAST_1 = Range(1)
MINUS_1_OR_MORE = Range(-1)


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``instead`` says what to do if the option is refused.

    ``doc``, one line of the page of options, says what the option does. For an option of Kafka's producer it says only
    what differs from Kafka, whose documentation has the rest.
    """

    name: str
    kind: OptionKind
    default: bool | int | float | str | None
    importance: str
    doc: str
    valid: Range | OneOf | Matching | None = None
    status: Status = Status.SUPPORTED
    instead: str = ""

    @property
    def allowed(self) -> str:
        """The valid values in words that can follow "must be"."""
        if self.kind.is_integer:
            return f"a whole number {self.valid}" if self.valid is not None else "a whole number"
        if self.kind is OptionKind.DOUBLE and self.valid is not None:
            return f"a number {self.valid}"
        return str(self.valid) if self.valid is not None else _IN_WORDS[self.kind]

    def parse(self, value: object) -> Value:
        """The value in the option's type (Java: ``ConfigDef.parseType``). Raises ``BadValueError``.

        Strings are trimmed. Integers and booleans may be native or strings, lists may be lists or strings with commas.
        A string of nothing but white space is refused, because "" has a meaning for some options: an empty
        ``ssl.endpoint.identification.algorithm`` switches the check of host names off.
        """
        is_url = self.name.endswith(".url")  # the value may contain a user and a password
        trimmed = value.strip(_TRIMMED) if isinstance(value, str) else value
        if self.kind in (STRING, CLASS) and isinstance(trimmed, str) and value and not trimmed.strip():
            raise BadValueError("is blank; give it a value or leave it out.")
        if self.kind.is_integer:
            parsed: Value = self._integer(trimmed)
        elif self.kind is OptionKind.DOUBLE:
            parsed = self._double(trimmed)
        elif self.kind is OptionKind.BOOLEAN:
            parsed = _boolean(trimmed)
        elif self.kind is OptionKind.LIST:
            parsed = _list(trimmed)
        elif self.kind is OptionKind.PASSWORD:
            return self._password(trimmed)
        else:
            parsed = self._string(trimmed)
        if parsed is None:
            given = f"a {type(value).__name__}" if is_url else repr(value)
            raise BadValueError(f"must be {self.allowed}, but is {given}.")
        return Url(parsed) if is_url and isinstance(parsed, str) else parsed

    def _password(self, value: object) -> Password:
        if isinstance(value, Password):
            return value
        text = self._string(value)
        if text is None:
            raise BadValueError(f"must be {self.allowed}, but is a {type(value).__name__}.")
        return Password(text)

    def _integer(self, value: object) -> int | None:
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        return value if not isinstance(self.valid, Range) or self.valid.allows(value, self.kind) else None

    def _double(self, value: object) -> float | None:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            return None
        try:
            number = float(value)
        except ValueError:
            return None
        return number if not isinstance(self.valid, Range) or self.valid.allows(number, self.kind) else None

    def _string(self, value: object) -> str | None:
        # acks=1 and client.id=7 may be numbers, but a bool is a mistake.
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            return None
        text = str(value)
        if isinstance(self.valid, Matching):
            return text if re.fullmatch(self.valid.pattern, text) else None
        return self.valid.find(text) if isinstance(self.valid, OneOf) else text


def _boolean(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return BOOLEANS.get(value.lower()) if isinstance(value, str) else None


def _list(value: object) -> tuple[str, ...] | None:
    if isinstance(value, str):
        value = value.split(",") if value else []
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(item.strip() for item in value)
    return None


_IN_WORDS = {
    OptionKind.BOOLEAN: "true or false",
    OptionKind.DOUBLE: "a number",
    OptionKind.STRING: "a string",
    OptionKind.LIST: "a comma-separated list",
    OptionKind.CLASS: "the name of a class",
    OptionKind.PASSWORD: "a string",
}


_OPTION: Final = "option"


def option(
    name: str,
    kind: OptionKind,
    default: bool | int | float | str | None,
    importance: str,
    doc: str,
    valid: Range | OneOf | Matching | None = None,
) -> Any:
    """A field of a dataclass for the value of this option.

    ``default`` is only for parsing, and rules may change it. The field itself has no default.
    """
    return field(metadata={_OPTION: Option(name, kind, default, importance, doc, valid)})


def kafka_option(
    kind: OptionKind,
    default: bool | int | float | str | None,
    importance: str,
    valid: Range | OneOf | Matching | None = None,
    doc: str = "",
) -> Any:
    """``option`` for an option of Kafka's, whose name is the field's name with dots for underscores."""
    return option("", kind, default, importance, doc, valid)


def declared_options(cls: type) -> dict[str, Option]:
    """The options of a dataclass by the names of their fields."""
    declared = {each.name: each.metadata[_OPTION] for each in fields(cls) if _OPTION in each.metadata}
    return {name: replace(found, name=found.name or name.replace("_", ".")) for name, found in declared.items()}


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """``; did you mean <prefix>X?`` for the known name X closest to ``name``, "" if none is close."""
    from difflib import get_close_matches

    plain = {candidate.lower().replace("_", "."): candidate for candidate in known}
    close = get_close_matches(name.lower().replace("_", "."), plain, n=1, cutoff=0.72)
    return f"; did you mean {prefix}{plain[close[0]]}?" if close else ""


def needing(names: Sequence[str], needed: str) -> str:
    """The fault of options that have no effect without ``needed``, which is not given."""
    verb, left_out = ("needs", names[0]) if len(names) == 1 else ("need", "them")
    return f"{', '.join(names)} {verb} {needed}: set that, or leave {left_out} out."


@dataclass
class ConfigBuilder:
    """An unfinished configuration: the ``values`` of all options, the options ``given``, the ``faulty`` ones.

    ``names`` has the old names of options that were given by an old name. ``placeholders`` has the options whose values
    come from config providers, as they were given; no fault or warning shows such a value. ``concerned`` has the
    options that the current rule reads.
    """

    prefix: str
    values: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    names: Mapping[str, str] = field(default_factory=dict)
    placeholders: dict[str, str] = field(default_factory=dict)
    concerned: frozenset[str] = frozenset()

    def fault(self, name: str, sentence: str) -> None:
        self.faulty.add(name)
        self.faults.append(self._about(name, sentence, "is refused"))

    def forbid(self, name: str, clause: str) -> None:
        """Adds a fault of the operator's limits. The fault shows no value, not even one of a config provider."""
        self.faulty.add(name)
        self.faults.append(f"{self.prefix}{self.names.get(name, name)} {clause}.")

    def caution(self, name: str, sentence: str) -> None:
        """Adds a warning that shows no value, not even one of a config provider."""
        self.warnings.append(f"{self.prefix}{self.names.get(name, name)} {sentence}")

    def caution_clear_text(self, name: str, url: str) -> None:
        """Warns if ``url``, the value of the option ``name``, has no TLS. For URLs that are sent credentials."""
        parts = urlsplit(url)
        if parts.scheme.lower() == "http" and not is_loopback(parts.hostname or ""):
            self.caution(
                name, "begins with http://, so the credentials cross the network in clear text; write an https:// URL."
            )

    def warn(self, name: str, sentence: str) -> None:
        self.warnings.append(self._about(name, sentence, "is adjusted or has no effect"))

    def _about(self, name: str, sentence: str, outcome: str) -> str:
        named = f"{self.prefix}{self.names.get(name, name)}"
        hidden = [self.placeholders[each] for each in sorted({name, *self.concerned} & self.placeholders.keys())]
        if not hidden:
            return f"{named} {sentence}"
        return f"{named} {outcome}, with the value that stands for {' and '.join(hidden)} and is not shown here."


class Rule(NamedTuple):
    """A rule over several options: ``apply`` checks and changes a draft, and is skipped if one of ``reads`` is faulty.

    ``reads``: options, each by its name, or several by a common beginning of their names.
    """

    reads: tuple[str, ...]
    apply: Callable[[ConfigBuilder], None]


def rule(*reads: str) -> Callable[[Callable[[ConfigBuilder], None]], Rule]:
    """Makes a function a rule that reads these options."""
    return lambda apply: Rule(reads, apply)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, where a secret without TLS crosses no network."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
