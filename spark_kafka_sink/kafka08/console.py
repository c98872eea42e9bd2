"""The console producer: lines of an input as records, sent by either producer (Kafka: ``ConsoleProducer``)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import combinations
from types import FrameType
from typing import BinaryIO, Final

from spark_kafka_sink.common.config.option import BOOLEANS, did_you_mean
from spark_kafka_sink.errors import ConfigError, FailedToSendError, KafkaError
from spark_kafka_sink.kafka08.sync_producer import SyncProducer
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.record import ProducerRecord, RecordMetadata

_EXIT_CODES: Final = {signal.SIGINT: 0, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGHUP: 128 + signal.SIGHUP}
"""The exit code after one of these signals, with everything delivered."""


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles these signals in the block, except for ignored ones (nohup ignores SIGHUP)."""
    replaced = {}
    try:
        for number in _EXIT_CODES:
            if signal.getsignal(number) is not signal.SIG_IGN:
                replaced[number] = signal.signal(number, handler)
        yield
    finally:
        for number, previous in replaced.items():
            signal.signal(number, previous)


class Lines:
    """The lines of ``source`` with their numbers, until its end or a signal.

    ``interrupt`` handles signals: the first one ends the reading, the second one raises KeyboardInterrupt.
    """

    def __init__(self, source: BinaryIO, prompt: bool) -> None:
        self.exit_code = 0
        self._source = source
        self._prompt = prompt
        self._reading = False
        self._interrupted = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        again, self._interrupted = self._interrupted, True
        self.exit_code = self.exit_code or _EXIT_CODES[signal.Signals(number)]
        if again or self._reading:
            raise KeyboardInterrupt

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        while line := self._read():
            number += 1
            yield number, line

    def _read(self) -> bytes:
        read: list[bytes] = []
        try:
            self._reading = True  # set before the flag is read: a later signal interrupts the wait for a line
            if self._interrupted:
                return b""
            if self._prompt:
                print(">", end="", flush=True)
            # One C call reads and stores the line: between two calls, a signal could drop it.
            read.extend(map(self._source.readline, (-1,)))
        except KeyboardInterrupt:
            pass
        finally:
            self._reading = False
        return read[0] if read else b""


class UndeliveredLines:
    """The count of undelivered lines, and the first of them. Counted on the sender thread."""

    def __init__(self) -> None:
        self.count = 0
        self.first: tuple[int, Exception] | None = None

    def callback(self, number: int) -> Callable[[RecordMetadata | None, Exception | None], None]:
        def completed(_: RecordMetadata | None, error: Exception | None) -> None:
            if error is not None:
                self.count += 1
                self.first = self.first or (number, error)

        return completed

    def __str__(self) -> str:
        if self.first is None:
            return ""
        number, error = self.first
        return f"{self.count} of the records were not delivered, the first from line {number}: {error}"


def send_all(lines: Lines, reader: LineReader, producer: KafkaProducer) -> None:
    """Sends each line. A line that is not a record, or cannot be sent, ends the reading; earlier lines are
    delivered."""
    failures = UndeliveredLines()
    ended_by = ""
    try:
        for number, line in lines:
            producer.send(reader.record(line, number), failures.callback(number))
    except LineError as error:
        ended_by = str(error)
    except KafkaError as error:
        ended_by = f"line {number}: {error}"
    producer.flush()
    if ended_by or failures.count:
        raise LineError("; ".join(text for text in (ended_by, str(failures)) if text))


def send_each(lines: Lines, reader: LineReader, producer: SyncProducer) -> None:
    """Sends each line and waits for it. A line that is not a record, or is not delivered, ends the reading."""
    for number, line in lines:
        record = reader.record(line, number)
        try:
            producer.send(record)
        except FailedToSendError as error:
            raise LineError(f"line {number}: {error.errors[0]}") from error
        except KafkaError as error:
            raise LineError(f"line {number}: {error}") from error


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
                if text.lower() not in BOOLEANS:
                    faults.append(f"--property {name} must be true or false, but is {text!r}.")
                values[names[name].name] = BOOLEANS.get(text.lower(), False)
            elif not text and name != "null.marker":
                faults.append(f"--property {name} must not be empty.")
            else:
                values[names[name].name] = text.encode(errors="surrogateescape")
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
            raise LineError(f"line {number}: no {what} ({_show(separator)}) in {_show(text)}")
        return before, after

    def _headers(self, text: bytes, number: int) -> list[tuple[str, bytes | None]]:
        if not text or self._or_null(text) is None:
            return []
        pairs = []
        for pair in text.split(self.headers_separator):
            name, value = self._cut(pair, self.headers_key_separator, "header key separator", number)
            if self._or_null(name) is None:
                raise LineError(f"line {number}: a header's name cannot be null, as in {_show(pair)}")
            try:
                pairs.append((name.decode(), self._or_null(value)))
            except UnicodeDecodeError as error:
                raise LineError(f"line {number}: the header name {_show(name)} is not UTF-8") from error
        return pairs

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text == self.null_marker else text

    def _equal_separators(self) -> list[str]:
        """A fault for each two separators in use that are equal."""
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


def _show(text: bytes) -> str:
    shown = repr(text.decode(errors="replace"))
    return shown if len(shown) <= 80 else f"{shown[:77]}…"
