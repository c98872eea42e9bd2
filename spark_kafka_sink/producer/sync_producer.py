"""``SyncProducer``: sends and waits on its caller's thread (Kafka 0.8: ``producer.type=sync``).

It shares partitioners, size checks, batch encoding, Produce requests and the network client with ``KafkaProducer``.
``open_producer`` opens one of the two.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Literal, NamedTuple, Never, TypedDict, Unpack, overload

import numpy as np
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.compression import load_codec
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import (
    AT_LEAST_0,
    INT,
    LONG,
    MINUS_1_OR_MORE,
    BadValueError,
    declared_options,
    kafka_option,
)
from spark_kafka_sink.common.config.producer_config import refuse_other_than_mapping
from spark_kafka_sink.common.config.rules import PRODUCER_TYPE
from spark_kafka_sink.common.forks import inherited_error, on_fork, pickling_error
from spark_kafka_sink.common.model import NO_IDENTITY, NO_LEADER, TopicPartition
from spark_kafka_sink.errors import (
    AuthenticationError,
    ConfigError,
    FailedToSendError,
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    NetworkError,
    ProducerClosedError,
)
from spark_kafka_sink.network.api_versions import produce_versions
from spark_kafka_sink.network.error_table import NOT_RETRIED, Action, action, broker_error
from spark_kafka_sink.network.messages import Response
from spark_kafka_sink.network.rpc import MakeRequest, Rpc
from spark_kafka_sink.producer.kafka_partitioners import load_partitioner
from spark_kafka_sink.producer.metrics import PRODUCER, SAMPLE_WINDOW_MS, SAMPLES, TOPIC, Sample, current_samples
from spark_kafka_sink.producer.partitioner import NOT_GIVEN, PartitionLoad
from spark_kafka_sink.producer.produce_api import PartitionResponse, ProduceRequest, ProduceResponse
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.producer_batch import NO_TIMESTAMP, UNKNOWN_OFFSET, ProducerBatch
from spark_kafka_sink.producer.record import (
    ProducerRecord,
    RecordMetadata,
    as_bytes,
    check_partition_and_timestamp,
    encode_headers,
)
from spark_kafka_sink.producer.rows import check_sizes, slices
from spark_kafka_sink.producer.serializers import BytesSerializer, GivenSerializer, RecordSerializers
from spark_kafka_sink.records.columns import RecordColumns, bytes_column, one_java_size_estimate
from spark_kafka_sink.records.encode import NO_SEQUENCE

_log = logging.getLogger("spark_kafka_sink.producer")

_ASYNC_ONLY = {
    "enable.idempotence": (None, "false", False),
    "transactional.id": (None,),
    "interceptor.classes": (None, ""),
}
"""Options of sequence numbers and interceptors, and the values that turn these off."""

_ALL_TOPICS = ""
_NOT_ACKNOWLEDGED = PartitionResponse(UNKNOWN_OFFSET)


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """The options of ``SyncProducer`` as in Kafka 0.8's ``ProducerConfig``. ``kafka``: those of both producers."""

    # fmt: off
    kafka: ProducerConfig
    message_send_max_retries: int = kafka_option(INT, 3, "high", AT_LEAST_0,
        doc="Retries of a record after a retriable error.")
    topic_metadata_refresh_interval_ms: int = kafka_option(LONG, 600_000, "low", MINUS_1_OR_MORE,
        doc="Metadata older than this is refreshed before a send. -1: only after an error. 0: before each send (slow).")
    # fmt: on

    @classmethod
    def parse(cls, mapping: Mapping[str, object]) -> SyncConfig:
        """Raises ``ConfigError`` with all faults at once. A client.id is generated if there is none."""
        refuse_other_than_mapping(mapping)
        rest = dict(mapping)
        faults = [
            f"{name} needs the asynchronous producer: leave it out."
            for name, harmless in _ASYNC_ONLY.items()
            if rest.pop(name, None) not in harmless
        ]
        own: dict[str, Any] = {}
        for field, each in declared_options(cls).items():
            given = rest.pop(each.name, None)
            try:
                own[field] = each.parse(each.default if given is None else given)
            except BadValueError as error:
                faults.append(f"{each.name} {error}")
        kind = rest.pop(PRODUCER_TYPE, None)
        if kind is not None and str(kind).strip() != "sync":
            faults.append(f"{PRODUCER_TYPE} is {kind!r}, but this producer is sync; use open_producer.")
        try:
            kafka = ProducerConfig.parse({**rest, "enable.idempotence": False})
        except ConfigError as error:
            faults += error.faults
        if faults:
            raise ConfigError(faults)
        return cls(kafka.with_client_id(), **own)

    def by_name(self) -> dict[str, object]:
        """The values of both producers' options by their names, which ``configure`` of the user's classes gets."""
        own = {each.name: getattr(self, field) for field, each in declared_options(SyncConfig).items()}
        return own | self.kafka.by_name()


class _Message(NamedTuple):
    """A serialized record. ``row``: its position in the call; ``headers``: encoded; ``partition_key``: what the
    partitioner gets, None for an unkeyed record.
    """

    row: int
    topic: str
    key: bytes | None
    value: bytes | None
    partition_key: bytes | None
    partition: int | None
    timestamp: int
    headers: bytes

    @property
    def size(self) -> int:
        """Java's estimate in bytes."""
        return one_java_size_estimate(len(self.headers), (self.key, self.value))


_Group = Sequence[_Message]
"""Messages of one partition, in their order."""


class _Results:
    """The outcomes of the messages of one call, by row."""

    def __init__(self) -> None:
        self.delivered: dict[int, RecordMetadata] = {}
        self.errors: dict[int, Exception] = {}

    def deliver(self, group: _Group, partition: int, response: PartitionResponse) -> None:
        base, appended = response.base_offset, response.log_append_time
        for position, message in enumerate(group):
            self.errors.pop(message.row, None)
            self.delivered[message.row] = RecordMetadata(
                message.topic,
                partition,
                UNKNOWN_OFFSET if base == UNKNOWN_OFFSET else base + position,
                message.timestamp if appended == NO_TIMESTAMP else appended,
                -1 if message.key is None else len(message.key),
                -1 if message.value is None else len(message.value),
            )

    def undelivered(self, messages: _Group) -> _Group:
        return [message for message in messages if message.row not in self.delivered]

    def fail(self, group: _Group, error: Exception, retriable: bool) -> _Group:
        """Returns the messages to send again."""
        self.errors.update((message.row, error) for message in group)
        return group if retriable else ()


class Count(Enum):
    """Each is a total and a rate; a metric's name begins with the value."""

    MESSAGES = "message"
    BYTES = "byte"
    RESENDS = "resend"
    FAILED_SENDS = "failed-send"
    SERIALIZATION_ERRORS = "serialization-error"


class SyncMetrics:
    """What a ``SyncProducer`` has sent (Kafka 0.8: ``ProducerStats``, ``ProducerTopicStats``).

    Counts and their rates over the last 30 to 60 seconds, for all topics and for each. Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may read while its thread counts
        self._counts: Counter[tuple[Count, str]] = Counter()
        self._samples: tuple[Sample[Counter[tuple[Count, str]]], ...] = ()

    def add(self, what: Count, by_topic: Mapping[str, int], of_all: int, now: float) -> None:
        """``of_all``: for all topics together. One event may concern several topics."""
        with self._lock:
            if not self._samples or now - self._samples[-1].started >= SAMPLE_WINDOW_MS:
                self._samples = (*self._samples[1 - SAMPLES :], Sample(now, self._counts.copy()))
            self._counts[what, _ALL_TOPICS] += of_all
            for topic, more in by_topic.items():
                self._counts[what, topic] += more

    def read(self, now: float) -> dict[str, dict[str, float]]:
        """``producer-metrics`` and ``producer-topic-metrics.<topic>``, each with ``<count>-total`` and ``-rate``."""
        with self._lock:
            counts, samples = self._counts.copy(), self._samples
        held, seconds = current_samples(samples, now)
        base = held[0].base if held else counts
        return {
            f"{TOPIC}.{topic}" if topic else PRODUCER: {
                f"{count.value}-{kind}": value
                for count in Count
                for kind, value in (
                    ("total", counts[count, topic]),
                    ("rate", (counts[count, topic] - base[count, topic]) / seconds),
                )
            }
            for topic in sorted({_ALL_TOPICS, *(topic for _, topic in counts)})
        }


class SyncProducer:
    """Each ``send`` groups its records by leader and partition, sends them, and returns when they are in the log.

    At least once: a record that failed is sent again, up to ``message.send.max.retries`` (3) times,
    ``retry.backoff.ms`` (100) apart and after a metadata update; if only the response was lost, it is in the log twice.
    ``AuthenticationError`` is not retried.
    All unkeyed records of a topic go to one random partition until the next metadata update, at most for
    ``topic.metadata.refresh.interval.ms`` (10 min). Connections are kept over a metadata refresh (Kafka 0.8 closed all
    of them). ``config``: these options and Kafka's. Threads may share a producer: their calls are sent one after the
    other. A signal handler may close the producer, which ends a ``send`` of its thread with ``FailedToSendError``.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        key_serializer: GivenSerializer | None = None,
        value_serializer: GivenSerializer | None = None,
    ) -> None:
        self.config = SyncConfig.parse(config)
        kafka, random = self.config.kafka, Random()
        load_codec(kafka.compression_type)  # a missing library fails here, before any record is accepted
        self._serializers = RecordSerializers.load(kafka, key_serializer, value_serializer, BytesSerializer())
        self._clock: Clock = SystemClock()
        self._random = random
        try:
            self._serializers.configure(self.config.by_name())
            self._partitioner = load_partitioner(kafka, random)
        except BaseException:
            with suppress(Exception):  # logged
                self._serializers.close()
            raise
        self._unkeyed: dict[str, int] = {}
        self._kafka = kafka
        self._rpc = Rpc(kafka, self._clock)
        self._refreshed_at = self._clock.now()
        self._closed = False
        self._metrics = SyncMetrics()
        # Held while a call is sent, retries included. Reentrant: a signal handler may close its own thread's producer.
        self._lock = threading.RLock()
        self._sending = False
        self._inherited = False
        on_fork(self)

    def send(self, *records: ProducerRecord) -> list[RecordMetadata]:
        """Send these records together; returns their metadata, in their order. Offsets are -1 with acks=0.

        Raises before anything is sent: ``KafkaTimeoutError`` for a topic not known within max.block.ms,
        ``RecordTooLargeError``, ``InvalidRecordError`` or a serializer's error. Raises ``FailedToSendError`` for
        records that could not be sent. More than max.request.size bytes go in several requests, one after the other.
        """
        self._check_open()
        if not records:
            return []
        messages = self._serialize(records)
        results = _Results()
        with self._lock:
            self._check_open()
            if self._sending:
                raise IllegalStateError("send was called inside a send of the same thread, as by a signal handler.")
            try:
                self._sending = True
                self._send(messages, results)
            except Exception:
                unsent = {message.topic for message in results.undelivered(messages)}
                self._metrics.add(Count.FAILED_SENDS, Counter(unsent), 1, self._clock.now())
                raise
            except BaseException:  # an interrupt (Ctrl-C): the state of requests and connections is unknown
                interrupted = self._rpc
                if not self._closed:
                    self._rpc = Rpc(self._kafka, self._clock)
                with suppress(Exception):
                    interrupted.close()
                raise
            finally:
                self._sending = False
        return [results.delivered[index] for index in range(len(records))]

    def metrics(self) -> dict[str, dict[str, float]]:
        """Messages, bytes, resends and errors, of all topics and of each.

        The page Kafka 0.8's producer of the documentation lists them. By group and name, as ``KafkaProducer.metrics``:
        ``metrics()["producer-topic-metrics.t"]["message-rate"]``.
        """
        self._check_not_inherited()
        return self._metrics.read(self._clock.now())

    def close(self) -> None:
        """End the connections, once other threads' calls have returned. Again, or in a fork, it does nothing."""
        if self._inherited:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._rpc.close()
                try:
                    self._serializers.close()
                finally:
                    self._partitioner.close()

    def after_fork_in_child(self) -> None:
        """In the child of a fork: every use but ``close`` raises from now on. The connections are the parent's."""
        self._inherited = True

    def __reduce__(self) -> Never:
        raise pickling_error(self)

    def __enter__(self) -> SyncProducer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        self._check_not_inherited()
        if self._closed:
            raise ProducerClosedError("The producer is closed. Open a new one.")

    def _check_not_inherited(self) -> None:
        if self._inherited:
            raise inherited_error()

    def _serialize(self, records: Sequence[ProducerRecord]) -> _Group:
        for index, record in enumerate(records):
            if not isinstance(record, ProducerRecord):
                raise InvalidRecordError(f"send takes ProducerRecords, not {record!r:.80}.", index)
        topics = Counter(record.topic for record in records)
        self._metrics.add(Count.MESSAGES, topics, len(records), self._clock.now())
        messages = [self._message(row, record) for row, record in enumerate(records)]
        sizes: Counter[str] = Counter()
        for message in messages:
            sizes[message.topic] += len(message.value or b"")
        self._metrics.add(Count.BYTES, sizes, sizes.total(), self._clock.now())
        return messages

    def _message(self, row: int, record: ProducerRecord) -> _Message:
        try:
            key, value, headers = self._serializers.serialize(record)
            partition_key = self._serializers.partition_key(record, key)
        except Exception:
            self._metrics.add(Count.SERIALIZATION_ERRORS, {record.topic: 1}, 1, self._clock.now())
            raise
        check_partition_and_timestamp(record)
        return _Message(
            row=row,
            topic=record.topic,
            key=as_bytes("key", key),
            value=as_bytes("value", value),
            partition_key=partition_key,
            partition=record.partition,
            timestamp=self._clock.epoch_ms() if record.timestamp is None else record.timestamp,
            headers=encode_headers(headers or ()),
        )

    def _send(self, messages: _Group, results: _Results) -> None:
        """Under the lock. Raises ``FailedToSendError`` after the first request with messages that failed."""
        limit = self._kafka.max_request_size
        sizes = np.array([message.size for message in messages])
        check_sizes(sizes, {"max.request.size": limit})
        attempted = messages
        try:
            self._await_topics(messages)
            for chunk in slices(sizes, limit):
                attempted = messages[chunk]
                self._handle(attempted, results)
                if results.errors:
                    break
        except Exception as error:  # of metadata or a partitioner, or of closed sockets
            if not (results.delivered or results.errors or self._closed):  # nothing was sent
                raise
            failure = ProducerClosedError("The producer was closed during this send.") if self._closed else error
            results.fail(results.undelivered(attempted), failure, False)
        if results.errors:
            first = results.errors[min(results.errors)]
            raise FailedToSendError(
                f"Failed to send {len(results.errors)} of {len(messages)} records, the first because of: {first}",
                results.errors,
                results.delivered,
            ) from first

    def _await_topics(self, messages: _Group) -> None:
        named = sorted(messages, key=lambda message: NOT_GIVEN if message.partition is None else message.partition)
        highest = {message.topic: message.partition for message in named}
        self._rpc.metadata.wait_for_topics(highest, self._kafka.max_block_ms)

    def _handle(self, messages: _Group, results: _Results) -> None:
        """Send, and retry what failed with a retriable error."""
        interval = self.config.topic_metadata_refresh_interval_ms
        is_due = 0 <= interval <= self._clock.now() - self._refreshed_at
        # Without acknowledgements a broker says only by closing the connection that it no longer is the leader.
        if is_due or (self._kafka.acks == 0 and self._rpc.lost_connections()):
            self._refresh()
        backoff = self._kafka.retry_backoff_ms
        outstanding = self._dispatch(messages, results)
        for remaining in reversed(range(self.config.message_send_max_retries)):
            if not outstanding:
                return
            _log.info(
                "Back off for %d ms before sending %d records again (%d retries remain): %s",
                backoff, len(outstanding), remaining, results.errors[outstanding[0].row],
            )  # fmt: skip
            self._rpc.pause(backoff)
            try:
                self._refresh()
            except AuthenticationError as error:
                results.fail(outstanding, error, False)
                return
            topics = {message.topic for message in outstanding}
            self._metrics.add(Count.RESENDS, Counter(topics), 1, self._clock.now())
            outstanding = self._dispatch(outstanding, results)

    def _refresh(self) -> None:
        self._rpc.refresh()
        self._unkeyed.clear()
        self._refreshed_at = self._clock.now()

    def _dispatch(self, messages: _Group, results: _Results) -> list[_Message]:
        """One request to each leader; returns the messages to send again."""
        collated = self._collate(messages)
        again: list[_Message] = []
        for partition, group in collated.pop(NO_LEADER, {}).items():
            again += results.fail(group, broker_error(ErrorCode.leader_not_available, str(partition)), True)
        requests = {node: self._request(groups) for node, groups in collated.items()}
        for node, response in self._rpc.exchange(requests, reconnects=self._kafka.acks != 0).items():
            if failed := _handle_response(collated[node], response, results):
                self._rpc.metadata.doubt_leaders(collated[node])
            again += failed
        return sorted(again)

    def _collate(self, messages: _Group) -> dict[int, dict[TopicPartition, list[_Message]]]:
        """Leader (or ``NO_LEADER``) → partition → its messages (Kafka 0.8: ``partitionAndCollate``)."""
        snapshot = self._rpc.snapshot
        topics: dict[str, list[_Message]] = {}
        for message in messages:
            topics.setdefault(message.topic, []).append(message)
        collated: dict[int, dict[TopicPartition, list[_Message]]] = {}
        for topic, group in topics.items():
            count = snapshot.partition_counts.get(topic)
            partitions = [0] * len(group) if count is None else self._partitions(topic, group, count)
            for message, partition in zip(group, partitions, strict=True):
                name = TopicPartition(topic, partition)
                collated.setdefault(snapshot.leader(name), {}).setdefault(name, []).append(message)
        return collated

    def _partitions(self, topic: str, group: _Group, count: int) -> list[int]:
        """A partition for each message of one topic: its own, the partitioner's for keyed ones, or the random one."""
        snapshot, ignore_keys = self._rpc.snapshot, self._kafka.partitioner_ignore_keys
        available = tuple(p for p in range(count) if snapshot.leader(TopicPartition(topic, p)) != NO_LEADER)
        explicit = np.full(len(group), NOT_GIVEN, np.int32)
        for row, message in enumerate(group):
            if message.partition is not None:
                explicit[row] = message.partition
            elif message.partition_key is None or ignore_keys:
                if topic not in self._unkeyed:
                    self._unkeyed[topic] = self._random.choice(available or range(count))
                explicit[row] = self._unkeyed[topic]
        columns = RecordColumns(
            bytes_column([message.partition_key for message in group]),
            bytes_column([message.value for message in group]),
        )
        sizes = np.array([message.size for message in group], np.int64)
        load = PartitionLoad(available, (0,) * len(available), snapshot)
        partitions: list[int] = self._partitioner.partition(topic, columns, explicit, sizes, count, load).tolist()
        return partitions

    def _request(self, groups: Mapping[TopicPartition, _Group]) -> MakeRequest:
        kafka = self._kafka
        batches = [_batch(partition, group, kafka) for partition, group in groups.items()]
        ids = self._rpc.snapshot.topic_ids.if_distinct()
        versions = produce_versions(ids is not None, zstd=kafka.compression_type == "zstd")
        return lambda on_complete: ProduceRequest(batches, kafka, on_complete, versions, topic_ids=ids)


def _batch(partition: TopicPartition, group: _Group, kafka: ProducerConfig) -> ProducerBatch:
    """One batch without producer id."""
    timestamps = np.array([message.timestamp for message in group], np.int64)
    columns = RecordColumns(
        bytes_column([message.key for message in group]),
        bytes_column([message.value for message in group]),
        bytes_column([message.headers for message in group]),
    )
    codec, level = kafka.compression_type, kafka.compression_level
    batch = ProducerBatch.of_columns(partition, columns, timestamps, codec, level)
    batch.stamp(NO_IDENTITY, NO_SEQUENCE)
    return batch


def _handle_response(
    groups: Mapping[TopicPartition, _Group], response: Response | KafkaError, results: _Results
) -> list[_Message]:
    """Note the outcome of one request; returns the messages to send again."""
    error, body = (response, None) if isinstance(response, KafkaError) else (response.error, response.body)
    # acks=0: no body
    given = body.partitions if isinstance(body, ProduceResponse) else dict.fromkeys(groups, _NOT_ACKNOWLEDGED)
    if given.keys() != groups.keys():
        received = ", ".join(f"{topic}-{index}" for topic, index in given) or "none"
        error = NetworkError(f"Incomplete response: requested {', '.join(map(str, groups))}, received {received}")
    again: list[_Message] = []
    for partition, group in groups.items():
        if error is not None:
            again += results.fail(group, error, not isinstance(error, NOT_RETRIED))
            continue
        each = given[partition]
        verdict = action("produce", each.error_code)
        if verdict is Action.SUCCEED:
            results.deliver(group, partition.partition, each)
        else:
            failure = broker_error(each.error_code, str(partition), each.error_message)
            again += results.fail(group, failure, verdict < Action.SPLIT)
            for index, (code, text) in each.refused(len(group)).items():
                where = f"{partition}, record {index} of its batch"
                results.errors[group[index].row] = broker_error(code, where, text)
    return again


class Serializers(TypedDict, total=False):
    key_serializer: GivenSerializer | None
    value_serializer: GivenSerializer | None


@overload
def open_producer(
    config: Mapping[str, object], producer_type: Literal["async"], **serializers: Unpack[Serializers]
) -> KafkaProducer: ...
@overload
def open_producer(
    config: Mapping[str, object], producer_type: Literal["sync"], **serializers: Unpack[Serializers]
) -> SyncProducer: ...
@overload
def open_producer(
    config: Mapping[str, object], producer_type: None = None, **serializers: Unpack[Serializers]
) -> KafkaProducer | SyncProducer: ...
def open_producer(
    config: Mapping[str, object], producer_type: str | None = None, **serializers: Unpack[Serializers]
) -> KafkaProducer | SyncProducer:
    """``async`` (the default): a ``KafkaProducer``. ``sync``: a ``SyncProducer``. Without ``producer_type``, the option
    ``producer.type`` is read.
    """
    name, kind = "producer_type", producer_type
    if kind is None:
        given = config.get(PRODUCER_TYPE)
        name, kind = PRODUCER_TYPE, "async" if given is None else str(given).strip()
    options = {option: value for option, value in config.items() if option != PRODUCER_TYPE}
    if kind == "sync":
        return SyncProducer(options, **serializers)
    if kind == "async":
        return KafkaProducer(options, **serializers)
    raise ConfigError([f"{name} must be sync or async, but is {kind!r}."])
