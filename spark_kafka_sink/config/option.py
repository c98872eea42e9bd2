"""What a row of the option tables is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_LARGEST = {"int": 2**31 - 1, "long": 2**63 - 1, "short": 2**15 - 1}


class Kind(Enum):
    """Kafka's own types of options (Java: ``ConfigDef.Type``)."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    SHORT = "short"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"


class Status(Enum):
    """What this package does with an option when it is given."""

    SUPPORTED = "supported"
    NO_EFFECT = "accepted, without effect"
    JVM_ONLY = "refused: only a JVM can honour it"
    NOT_YET = "refused: not built yet"


@dataclass(frozen=True, slots=True)
class Range:
    """Whole numbers from ``low`` to ``high`` (None: as far as the type goes), and ``besides`` them one more."""

    low: int
    high: int | None = None
    besides: int | None = None

    def allows(self, value: int, kind: Kind) -> bool:
        high = _LARGEST[kind.value] if self.high is None else self.high
        return self.low <= value <= high or value == self.besides

    def __str__(self) -> str:
        text = f"of at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
        return text if self.besides is None else f"{text}, or {self.besides}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of ``values``; with ``ignore_case`` in any case, read as the value is written here."""

    values: tuple[str, ...]
    ignore_case: bool = False

    def find(self, text: str) -> str | None:
        """The value that ``text`` stands for, None when it stands for none."""
        for value in self.values:
            if text == value or (self.ignore_case and text.lower() == value.lower()):
                return value
        return None

    def __str__(self) -> str:
        return f"one of {', '.join(self.values)}" if len(self.values) > 1 else self.values[0]


@dataclass(frozen=True, slots=True)
class Matching:
    """A text that matches ``pattern``, which ``words`` describe."""

    pattern: str
    words: str

    def __str__(self) -> str:
        return self.words


AT_LEAST_0 = Range(0)
AT_LEAST_1 = Range(1)
MINUS_1_OR_MORE = Range(-1)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of Kafka's producer: name, type, default, importance and valid values as in ``ProducerConfig`` 4.x.

    ``doc`` is one line; ``instead`` says what to do when the option is refused.
    """

    name: str
    kind: Kind
    default: bool | int | float | str | None
    importance: str
    doc: str
    valid: Range | OneOf | Matching | None = None
    status: Status = Status.SUPPORTED
    instead: str = ""

    @property
    def allowed(self) -> str:
        """The valid values in words, fit to follow "must be"."""
        if self.kind in (Kind.INT, Kind.LONG, Kind.SHORT):
            return f"a whole number {self.valid}" if self.valid is not None else "a whole number"
        if self.valid is not None:
            return str(self.valid)
        return _IN_WORDS[self.kind]


_IN_WORDS = {
    Kind.BOOLEAN: "true or false",
    Kind.DOUBLE: "a number",
    Kind.STRING: "a text",
    Kind.LIST: "a list separated by commas",
    Kind.CLASS: "the name of a class",
    Kind.PASSWORD: "a text",
}
