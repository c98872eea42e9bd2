"""``DeadLetterWriter``: the stage that makes dead letters of rejected rows. No other code makes one.

Only a rejected row becomes Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.errors import DeadLetterLimitError, KafkaError
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.spark.dead_letters.options import NO_TOPIC, DeadLetterOptions, Reason
from spark_kafka_sink.spark.dead_letters.record import (
    DeadLetterEncoder,
    DeadLetters,
    dead_letter_for,
    shorter_dead_letter,
)
from spark_kafka_sink.spark.end import End
from spark_kafka_sink.spark.rows import RejectedRows, Rows
from spark_kafka_sink.spark.topic_limits import doubt_limit, known_limits

_PIECE_BYTES: Final = 1 << 20
"""Dead letters are appended this many bytes at a time: an append costs as much as a few hundred of them."""

_LAST_FLUSH_MS: Final = 5_000.0

_LETTER_OVERHEAD: Final = 512
"""Connect's headers, about."""


class DeadLetterWriter:
    """Writes dead letters on one thread. It holds them, and appends them in pieces, the last one in ``finish``.

    Rows are counted as they came: a replay counts the same, whatever partition counts and limits are then.
    """

    def __init__(self, end: End, dead: DeadLetterOptions, clock: Clock, name: TaskName) -> None:
        self.reasons = dead.reasons
        self._end = end
        self._dead = dead
        self._clock = clock
        self._task = name.task
        self._encoder = DeadLetterEncoder(dead.connector or name.query, name.task, dead.connect_headers)
        self._held: list[DeadLetters] = []
        self._held_size = 0
        self._letters = 0
        self._refused = end.keep_refused() if Reason.RECORD_TOO_LARGE in dead.reasons else None

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        """The rows that are kept, if there are any."""
        for rejected in rows.rejected:
            self._take(rejected, rows)
        if not rows.are_all_rejected:
            yield replace(rows, rejected=()) if rows.rejected else rows

    def take_refused(self, rows: Rows) -> Iterator[Rows]:
        """A stage before the rows are validated: what brokers have refused shows which limits to ask for again."""
        self._write_refused()
        yield rows

    def finish(self) -> None:
        """After the last row: appends what is held. If brokers may refuse records, waits until all are acknowledged."""
        with self._end.meter.appending():
            self._append_held()
        if self._refused is None:
            return
        self._end.flush()
        while self._write_refused():
            self._append_held()
            self._end.flush()

    def _append_held(self) -> None:
        held, self._held, self._held_size = self._held, [], 0
        if held:
            limit = self._limit(self._end.core(), self._dead.topic)
            self._end.append_own(self._dead.topic, self._encoder.encode(held, limit))

    def _take(self, rejected: RejectedRows, rows: Rows) -> None:
        places = rejected.rows
        topics = TopicColumn(("",)) if rejected.kind.reason in NO_TOPIC else rows.topics[places]
        columns = rows.columns.take(places) if rejected.columns is None else rejected.columns
        partitions = None if rows.partitions is None else rows.partitions[places]
        self._end.count(topics, columns, partitions)
        if self._end.writes:
            now_ms = self._clock.epoch_ms()
            times = columns.timed(now_ms).timestamps
            columns = replace(columns, timestamps=np.full(len(columns), now_ms, np.int64) if times is None else times)
            self._hold(DeadLetters(rejected.kind, rejected.messages, topics, columns, partitions))

    def _write_refused(self) -> bool:
        """The records that brokers have refused so far; returns whether there were any. They are taken one by one, and
        as often as rows are appended: ``RefusalReceipt`` says what they hold till then.
        """
        if self._refused is None:
            return False
        rows, own = self._refused
        end, any_refused = self._end, False
        while (row := rows.take_refused()) is not None:
            any_refused = True
            doubt_limit(end.core(), row.partition.topic)
            self._hold(dead_letter_for(row))
        while (letter := own.take_refused()) is not None:
            any_refused = True
            doubt_limit(end.core(), letter.partition.topic)
            shorter = shorter_dead_letter(letter)
            if shorter is None:
                raise letter.error
            end.append_own(letter.partition.topic, shorter)
        return any_refused

    def _hold(self, letters: DeadLetters) -> None:
        self._end.meter.add_dead_letters(letters.kind.reason.value, len(letters))
        self._letters += len(letters)
        if (text := self._dead.over_limit(self._letters)) is not None:
            self._send_held_before_failing()
            raise DeadLetterLimitError(f"Task {self._task}: {text} The last: {letters.messages[-1]}")
        self._held.append(letters)
        self._held_size += letters.size + _LETTER_OVERHEAD * len(letters)
        if self._held_size >= _PIECE_BYTES:
            self._append_held()

    def _send_held_before_failing(self) -> None:
        """At least once, send the dead letters within the limit, which the error points to. Transactions abort."""
        if self._held and not self._end.is_transaction:
            with suppress(KafkaError):  # the task fails already, with another error
                self._append_held()
                self._end.core().flush(_LAST_FLUSH_MS)

    def _limit(self, core: ProducerCore, topic: str) -> int:
        """The largest record in bytes that the dead-letter topic takes."""
        core.partition_count(topic)
        limit = known_limits(core, [topic]).get(topic)
        size = min(core.config.max_request_size, core.config.buffer_memory)
        return size if limit is None else min(size, limit)
