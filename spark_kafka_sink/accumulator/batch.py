"""``ProducerBatch``: the records that go to one partition at once, from its first row to its answer.

One object through all its stages, as in Kafka: a batch of 16 KiB holds some 130 records, and whatever is made for each
batch is paid for by them.

- *open*: takes rows (callers, under the accumulator's lock);
- *sealed*: ``payload`` is there, bytes that never change, made by whoever closed it;
- *stamped*: ``header`` is there, with producer id, epoch, sequence and CRC. The sender thread's from then on; a retry
  sends the same bytes again;
- *done*: its listeners know what became of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from spark_kafka_sink.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.records.batch import HEADER_SIZE, BatchHeader, stamp_header

Buffer: TypeAlias = bytes | memoryview

UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1


class BatchListener(Protocol):
    def batch_completed(self, batch: ProducerBatch, share: RecordRange) -> None:
        """What became of ``share`` of ``batch``, which is done. Called on the sender thread, once; must not block.

        Of a batch that was split each part that has some of the share's rows tells of these.
        """


class RecordRange(NamedTuple):
    """The rows of one append within a batch, and who wants to know what became of them.

    They are ``rows`` records of the batch from record ``first`` on, ``size`` bytes before compression. ``skipped`` of
    the listener's rows come before these, in other parts of a batch that was split.
    """

    listener: BatchListener
    first: int
    rows: int
    size: int
    skipped: int = 0

    def within(self, start: int, end: int) -> RecordRange | None:
        """What of it lies in records ``start .. end - 1`` when these become a batch of their own."""
        first, last = max(self.first, start), min(self.first + self.rows, end)
        if first >= last:
            return None
        size = self.size * (last - first) // self.rows
        return RecordRange(self.listener, first - start, last - first, size, self.skipped + first - self.first)


class Hold:
    """Bytes of ``buffer.memory`` that several batches share because their segments lie in one encoded slice.

    Guarded by the buffer pool's lock; the bytes are free again when the last user lets go.
    """

    __slots__ = ("size", "users")

    def __init__(self, size: int) -> None:
        self.size = size
        self.users = 0


NO_SEQUENCE = -1


class ProducerBatch:
    """Who may touch what: the accumulator's lock guards an open batch; while it is ``claimed``, what the claim changes
    is its caller's. ``own`` and ``hold`` are guarded by the buffer pool's lock once it is published. All else is the
    sender thread's after the drain.

    - ``limit``: how many bytes it may grow to, header included; ``size``: an upper bound of them while it is open, what
      it takes when it is sealed; ``plain_size``: that before compression; ``codec``: the attribute bits, 0 for none;
    - ``filled``: no further row fits; ``due``: linger.ms has passed;
    - ``shares``: whose rows these are; ``own`` and ``hold``: what it keeps of ``buffer.memory`` until it is done, bytes
      of its own and its part of an encoded slice;
    - ``attempts``: how many times it was sent; ``last_error``: what the latest came to;
    - ``parts``: what it was split into. A batch that is split never completes itself: its parts do;
    - ``base_offset``, ``log_append_time`` and ``error`` are there once it is ``judged``: the offset of its first
      record, ``UNKNOWN_OFFSET`` for acks=0 and for duplicates the broker no longer remembers; the broker's time (epoch
      ms) on topics with LogAppendTime, else ``NO_TIMESTAMP``; why it was not delivered, None when it was;
    - ``done``: its listeners know.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "claimed",
        "codec",
        "count",
        "created",
        "done",
        "due",
        "error",
        "filled",
        "header",
        "hold",
        "identity",
        "judged",
        "last_error",
        "limit",
        "log_append_time",
        "max_timestamp",
        "own",
        "partition",
        "parts",
        "payload",
        "plain_size",
        "segments",
        "shares",
        "size",
    )

    base_offset: int
    log_append_time: int
    error: Exception | None

    def __init__(self, partition: TopicPartition, created: float, limit: int, base_timestamp: int) -> None:
        self.partition = partition
        self.created = created
        self.limit = limit
        self.base_timestamp = self.max_timestamp = base_timestamp
        self.count = self.own = self.codec = self.attempts = 0
        self.size = self.plain_size = HEADER_SIZE
        self.segments: list[Buffer] = []
        self.shares: list[RecordRange] = []
        self.claimed = self.filled = self.due = self.judged = self.done = False
        self.hold: Hold | None = None
        self.payload: Sequence[Buffer] | None = None
        self.header: bytes | None = None
        self.last_error: Exception | None = None
        self.parts: tuple[ProducerBatch, ...] = ()
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE

    def seal(self, codec: int, payload: Sequence[Buffer], plain_size: int) -> None:
        """These are its records now; ``plain_size``: their bytes before compression."""
        self.codec = codec
        self.payload = payload
        self.plain_size = HEADER_SIZE + plain_size
        self.size = HEADER_SIZE + sum(map(len, payload)) if codec else self.plain_size

    def stamp(self, identity: ProducerIdentity, base_sequence: int, flags: int = 0) -> None:
        """Give a sealed batch its header; ``flags``: attribute bits besides the codec's."""
        assert self.payload is not None
        self.identity = identity
        self.base_sequence = base_sequence
        header = BatchHeader(
            self.codec | flags,
            self.count,
            self.base_timestamp,
            self.max_timestamp,
            identity.producer_id,
            identity.epoch,
            base_sequence,
        )
        self.header = stamp_header(header, self.payload)

    def complete(self, base_offset: int, log_append_time: int, error: Exception | None) -> None:
        """On the sender thread, once. Whoever still waits for it must not keep its records."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.error = error
        self.judged = True
        self.tell()

    def tell(self) -> None:
        """Tell the listeners what it came to; goes on where an interrupted one stopped."""
        self.segments = []
        self.payload = ()
        shares = self.shares
        while shares:
            share = shares[0]
            share.listener.batch_completed(self, share)
            del shares[0]
        self.done = True
