"""Lines → records (Java: ``LineMessageReader`` of ``kafka-console-producer``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import combinations

from spark_kafka_sink.common.config.option import did_you_mean
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.producer.append.record import ProducerRecord

_BOOLEANS = {"true": True, "false": False}


class LineError(KafkaError):
    """A line that is not a record; the text begins with the line's number."""


@dataclass(frozen=True, slots=True)
class LineReader:
    """Reads ``[headers ⟨headers.delimiter⟩] [key ⟨key.separator⟩] value``. Fields are Kafka's properties.

    Headers are ``name:value`` pairs separated by commas. A part equal to ``null_marker`` is null. Header names are
    UTF-8; all other parts may be any bytes.
    """

    topic: str
    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    @classmethod
    def parse(cls, topic: str, properties: Iterable[tuple[str, str]]) -> LineReader:
        """A reader with properties such as ``parse.key=true``. Raises ``ConfigError`` with all faults."""
        names = {field.name.replace("_", "."): field for field in fields(cls) if field.name != "topic"}
        values: dict[str, bool | bytes] = {}
        faults = []
        for name, text in properties:
            if name not in names:
                faults.append(f"--property {name} is unknown{did_you_mean(name, names) or '.'}")
            elif names[name].type == "bool":
                if text.lower() not in _BOOLEANS:
                    faults.append(f"--property {name} must be true or false, but is {text!r}.")
                values[names[name].name] = _BOOLEANS.get(text.lower(), False)
            elif not text and name != "null.marker":
                faults.append(f"--property {name} must not be empty.")
            else:
                values[names[name].name] = text.encode()
        reader = cls(topic, **values)  # type: ignore[arg-type]
        faults += reader._equal_separators()
        if faults:
            raise ConfigError(faults)
        return reader

    def record(self, line: bytes, number: int) -> ProducerRecord:
        """The record in line ``number``, counted from 1. Raises ``LineError``."""
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        headers = key = None
        rest = line
        if self.parse_headers:
            headers, rest = self._cut(rest, self.headers_delimiter, "headers delimiter", number)
        if self.parse_key:
            key, rest = self._cut(rest, self.key_separator, "key separator", number)
        pairs = None if headers is None else self._headers(headers, number)
        return ProducerRecord(self.topic, self._or_null(rest), self._or_null(key), headers=pairs)

    def _cut(self, text: bytes, separator: bytes, what: str, number: int) -> tuple[bytes, bytes]:
        before, found, after = text.partition(separator)
        if not found:
            raise LineError(f"line {number}: no {what} ({_shown(separator)}) in {_shown(text)}")
        return before, after

    def _headers(self, text: bytes, number: int) -> list[tuple[str, bytes | None]]:
        if not text or self._or_null(text) is None:
            return []
        pairs = []
        for pair in text.split(self.headers_separator):
            name, value = self._cut(pair, self.headers_key_separator, "header key separator", number)
            if self._or_null(name) is None:
                raise LineError(f"line {number}: a header's name cannot be null, as in {_shown(pair)}")
            try:
                pairs.append((name.decode(), self._or_null(value)))
            except UnicodeDecodeError as error:
                raise LineError(f"line {number}: the header name {_shown(name)} is not UTF-8") from error
        return pairs

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text == self.null_marker else text

    def _equal_separators(self) -> list[str]:
        """Faults: pairs of equal separators among those in use."""
        used = {"null.marker": self.null_marker} if self.null_marker is not None else {}
        if self.parse_key:
            used["key.separator"] = self.key_separator
        if self.parse_headers:
            used["headers.delimiter"] = self.headers_delimiter
            used["headers.separator"] = self.headers_separator
            used["headers.key.separator"] = self.headers_key_separator
        return [
            f"--property {first} and {second} must not be the same."
            for first, second in combinations(used, 2)
            if used[first] == used[second] and {first, second} != {"key.separator", "headers.delimiter"}
        ]


def _shown(text: bytes) -> str:
    shown = repr(text.decode(errors="replace"))
    return shown if len(shown) <= 80 else f"{shown[:77]}…"
