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
from random import Random
from typing import Any, Literal, Never, TypedDict, Unpack, overload

import numpy as np
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.compression import load_codec
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.producer_config import refuse_other_than_mapping
from spark_kafka_sink.common.config.rules import PRODUCER_TYPE
from spark_kafka_sink.common.forks import inherited_error, on_fork, pickling_error
from spark_kafka_sink.common.model import NO_IDENTITY, NO_LEADER, UNKNOWN_OFFSET, TopicPartition
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
from spark_kafka_sink.kafka08.message import Group, KeyedMessage, Results, SerializedMessage
from spark_kafka_sink.kafka08.metrics import Count, SyncMetrics
from spark_kafka_sink.kafka08.options import SyncConfig, parse_either_name
from spark_kafka_sink.kafka08.producer_pool import MakeRequest, ProducerPool
from spark_kafka_sink.network.error_table import NOT_RETRIED, Action, action, broker_error
from spark_kafka_sink.network.messages import Response
from spark_kafka_sink.producer.kafka_partitioners import load_partitioner
from spark_kafka_sink.producer.partitioner import NO_PARTITION, PartitionLoad
from spark_kafka_sink.producer.produce_api import PartitionResponse, ProduceResponse, produce_request
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.record import (
    ProducerRecord,
    RecordMetadata,
    as_bytes,
    check_partition_and_timestamp,
    encode_headers,
)
from spark_kafka_sink.producer.rows import check_sizes, slices
from spark_kafka_sink.producer.serializers import BytesSerializer, GivenSerializer, RecordSerializers
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.batch import NO_SEQUENCE
from spark_kafka_sink.records.columns import RecordColumns

_log = logging.getLogger("spark_kafka_sink.producer")

_NOT_ACKNOWLEDGED = PartitionResponse(UNKNOWN_OFFSET)


class SyncProducer:
    """Each ``send`` groups its records by leader and partition, sends them, and returns when they are in the log.

    At least once: a record that failed is sent again, up to ``message.send.max.retries`` (3) times,
    ``retry.backoff.ms`` (100) apart and after a metadata update; if only the response was lost, it is in the log twice.
    ``AuthenticationError`` is not retried.
    All unkeyed records of a topic go to one random partition until the next metadata update, at most for
    ``topic.metadata.refresh.interval.ms`` (10 min). Connections are kept over a metadata refresh (Kafka 0.8 closed all
    of them). ``config``: these options and Kafka's. Threads may share a producer: their calls are sent one after the
    other. A signal handler may close the producer, which ends a ``send`` of its thread with ``FailedToSendError``. If a
    handler raises an error, that ends the ``send``, and the next one makes connections of its own.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        key_serializer: GivenSerializer | None = None,
        value_serializer: GivenSerializer | None = None,
    ) -> None:
        self.config = SyncConfig.parse(config)
        self._kafka = kafka = self.config.kafka
        load_codec(kafka.compression_type)  # a missing library fails here, before any record is accepted
        self._serializers = RecordSerializers.load(kafka, key_serializer, value_serializer, BytesSerializer())
        self._clock: Clock = SystemClock()
        self._random = Random()
        try:
            self._serializers.configure(self.config.by_name())
            self._partitioner = load_partitioner(kafka, self._random)
        except BaseException:
            with suppress(Exception):  # logged
                self._serializers.close()
            raise
        self._unkeyed: dict[str, int] = {}
        self._pool = ProducerPool(kafka, self._clock)
        self._refreshed_at = self._clock.now()
        self._closed = False
        self._metrics = SyncMetrics()
        # Held while a call is sent, retries included. Reentrant: a signal handler may close its own thread's producer.
        self._lock = threading.RLock()
        self._sending = False
        self._inherited = False
        on_fork(self)

    def send(self, *records: ProducerRecord | KeyedMessage) -> list[RecordMetadata]:
        """Sends these records together. Returns their metadata, in their order. Offsets are -1 with acks=0.

        Raises before anything is sent: ``KafkaTimeoutError`` for a topic not known within max.block.ms,
        ``RecordTooLargeError``, ``InvalidRecordError`` or a serializer's error. Raises ``FailedToSendError`` for
        records that could not be sent. More than max.request.size bytes go in several requests, one after the other.
        """
        self._check_open()
        if not records:
            return []
        messages = self._serialize(records)
        results = Results()
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
            finally:
                self._sending = False
        return [results.delivered[index] for index in range(len(records))]

    def metrics(self) -> dict[str, dict[str, float]]:
        """The counts and rates of messages, bytes, resends and errors, for all topics and for each.

        They are listed on the page Kafka 0.8's producer of the documentation. By group and name, as
        ``KafkaProducer.metrics``: ``metrics()["producer-topic-metrics.t"]["message-rate"]``.
        """
        self._check_not_inherited()
        return self._metrics.read(self._clock.now())

    def close(self) -> None:
        """Ends the connections, once other threads' calls have returned. A second call, or a call in a fork, does
        nothing."""
        if self._inherited:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._pool.close()
                try:
                    self._serializers.close()
                finally:
                    self._partitioner.close()

    def after_fork_in_child(self) -> None:
        """Has every use but ``close`` raise from now on, in the child of a fork, because the connections are the
        parent's."""
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

    def _serialize(self, given: Sequence[ProducerRecord | KeyedMessage]) -> Group:
        records: list[tuple[ProducerRecord, Any]] = []
        for index, each in enumerate(given):
            if isinstance(each, KeyedMessage):
                records.append((ProducerRecord(each.topic, each.value, each.key), each.partition_key))
            elif isinstance(each, ProducerRecord):
                records.append((each, None))
            else:
                raise InvalidRecordError(f"send takes ProducerRecords and KeyedMessages, not {each!r:.80}.", index)
        topics = Counter(record.topic for record, _ in records)
        self._metrics.add(Count.MESSAGES, topics, len(records), self._clock.now())
        messages = [self._message(row, *each) for row, each in enumerate(records)]
        sizes: Counter[str] = Counter()
        for message in messages:
            sizes[message.topic] += len(message.value or b"")
        self._metrics.add(Count.BYTES, sizes, sizes.total(), self._clock.now())
        return messages

    def _message(self, row: int, record: ProducerRecord, partition_key: Any) -> SerializedMessage:
        """The serialized message. ``partition_key``: None for the record's key."""
        try:
            key, value, headers = self._serializers.serialize(record)
            placing = key if partition_key is None else self._serializers.serialize_key(record.topic, partition_key)
        except Exception:
            self._metrics.add(Count.SERIALIZATION_ERRORS, {record.topic: 1}, 1, self._clock.now())
            raise
        check_partition_and_timestamp(record)
        return SerializedMessage(
            row=row,
            topic=record.topic,
            key=as_bytes("key", key),
            value=as_bytes("value", value),
            partition_key=as_bytes("key", placing),
            partition=record.partition,
            timestamp=self._clock.epoch_ms() if record.timestamp is None else record.timestamp,
            headers=encode_headers(headers or ()),
        )

    def _send(self, messages: Group, results: Results) -> None:
        """Sends the messages, under the lock. Raises ``FailedToSendError`` after the first request with messages that
        failed."""
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
        except BaseException as error:
            if not isinstance(error, KafkaError) or isinstance(error, IllegalStateError):
                self._renew_connections()
            if not isinstance(error, Exception) or not (results.delivered or results.errors or self._closed):
                raise  # an interrupt, or nothing was sent
            failure = ProducerClosedError("The producer was closed during this send.") if self._closed else error
            results.fail(results.undelivered(attempted), failure, False)
        if results.errors:
            first = results.errors[min(results.errors)]
            raise FailedToSendError(
                f"Failed to send {len(results.errors)} of {len(messages)} records, the first because of: {first}",
                results.errors,
                results.delivered,
            ) from first

    def _renew_connections(self) -> None:
        """Replaces the connections after an error that is not this producer's own. A signal handler may have raised it
        after a response was read and before it was noted, so the next call would take the rest of this response for its
        own. ``send`` raises ``IllegalStateError`` only inside another ``send``, so that is a handler's error, too.
        """
        torn = self._pool
        if not self._closed:
            self._pool = ProducerPool(self._kafka, self._clock)
        with suppress(Exception):
            torn.close()

    def _await_topics(self, messages: Group) -> None:
        named = sorted(messages, key=lambda message: NO_PARTITION if message.partition is None else message.partition)
        highest = {message.topic: message.partition for message in named}
        self._pool.metadata.wait_for_topics(highest, self._kafka.max_block_ms)

    def _handle(self, messages: Group, results: Results) -> None:
        """Sends the messages, and again those that failed with a retriable error."""
        interval = self.config.topic_metadata_refresh_interval_ms
        is_due = 0 <= interval <= self._clock.now() - self._refreshed_at
        # Without acknowledgements, a broker that no longer is the leader only closes the connection.
        if is_due or (self._kafka.acks == 0 and self._pool.lost_connections()):
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
            self._pool.pause(backoff)
            try:
                self._refresh()
            except AuthenticationError as error:
                results.fail(outstanding, error, False)
                return
            topics = {message.topic for message in outstanding}
            self._metrics.add(Count.RESENDS, Counter(topics), 1, self._clock.now())
            outstanding = self._dispatch(outstanding, results)

    def _refresh(self) -> None:
        self._pool.refresh()
        self._unkeyed.clear()
        self._refreshed_at = self._clock.now()

    def _dispatch(self, messages: Group, results: Results) -> list[SerializedMessage]:
        """Sends one request to each leader. Returns the messages to send again."""
        collated = self._collate(messages)
        again: list[SerializedMessage] = []
        for partition, group in collated.pop(NO_LEADER, {}).items():
            again += results.fail(group, broker_error(ErrorCode.leader_not_available, str(partition)), True)
        requests = {node: self._request(groups) for node, groups in collated.items()}
        for node, response in self._pool.exchange(requests, reconnects=self._kafka.acks != 0).items():
            if failed := _handle_response(collated[node], response, results):
                self._pool.metadata.mark_stale(collated[node])
            again += failed
        return sorted(again)

    def _collate(self, messages: Group) -> dict[int, dict[TopicPartition, list[SerializedMessage]]]:
        """Leader (or ``NO_LEADER``) → partition → its messages (Kafka 0.8: ``partitionAndCollate``)."""
        snapshot = self._pool.snapshot
        topics: dict[str, list[SerializedMessage]] = {}
        for message in messages:
            topics.setdefault(message.topic, []).append(message)
        collated: dict[int, dict[TopicPartition, list[SerializedMessage]]] = {}
        for topic, group in topics.items():
            count = snapshot.partition_counts.get(topic)
            partitions = [0] * len(group) if count is None else self._partitions(topic, group, count)
            for message, partition in zip(group, partitions, strict=True):
                name = TopicPartition(topic, partition)
                collated.setdefault(snapshot.leader(name), {}).setdefault(name, []).append(message)
        return collated

    def _partitions(self, topic: str, group: Group, count: int) -> list[int]:
        """A partition for each message of one topic: the one it names, the partitioner's for a keyed message, or the
        random one."""
        snapshot, ignore_keys = self._pool.snapshot, self._kafka.partitioner_ignore_keys
        available = tuple(p for p in range(count) if snapshot.leader(TopicPartition(topic, p)) != NO_LEADER)
        named_partitions = np.full(len(group), NO_PARTITION, np.int32)
        for row, message in enumerate(group):
            if message.partition is not None:
                named_partitions[row] = message.partition
            elif message.partition_key is None or ignore_keys:
                if topic not in self._unkeyed:
                    self._unkeyed[topic] = self._random.choice(available or range(count))
                named_partitions[row] = self._unkeyed[topic]
        columns = RecordColumns(
            bytes_column([message.partition_key for message in group]),
            bytes_column([message.value for message in group]),
        )
        sizes = np.array([message.size for message in group], np.int64)
        load = PartitionLoad(available, snapshot, topic)
        partitions: list[int] = self._partitioner.partition(
            topic, columns, named_partitions, sizes, count, load
        ).tolist()
        return partitions

    def _request(self, groups: Mapping[TopicPartition, Group]) -> MakeRequest:
        kafka = self._kafka
        batches = [_batch(partition, group, kafka) for partition, group in groups.items()]
        snapshot = self._pool.snapshot
        return lambda on_complete: produce_request(batches, kafka, snapshot, on_complete)


def _batch(partition: TopicPartition, group: Group, kafka: ProducerConfig) -> ProducerBatch:
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
    groups: Mapping[TopicPartition, Group], response: Response | KafkaError, results: Results
) -> list[SerializedMessage]:
    """Notes the outcome of one request. Returns the messages to send again."""
    error, body = (response, None) if isinstance(response, KafkaError) else (response.error, response.body)
    # acks=0: no body
    given = body.partitions if isinstance(body, ProduceResponse) else dict.fromkeys(groups, _NOT_ACKNOWLEDGED)
    if given.keys() != groups.keys():
        received = ", ".join(f"{topic}-{index}" for topic, index in given) or "none"
        error = NetworkError(f"Incomplete response: requested {', '.join(map(str, groups))}, received {received}")
    again: list[SerializedMessage] = []
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
    """Opens a ``KafkaProducer`` (``producer_type`` ``async``, the default) or a ``SyncProducer`` (``sync``). Without
    ``producer_type``, the option ``producer.type`` is read. Options may have the names of Kafka 0.8.
    """
    refuse_other_than_mapping(config)
    name, kind = "producer_type", producer_type
    if kind is None:
        given = config.get(PRODUCER_TYPE)
        name, kind = PRODUCER_TYPE, "async" if given is None else str(given).strip()
    if kind == "sync":
        return SyncProducer({**config, PRODUCER_TYPE: kind}, **serializers)
    if kind == "async":
        return KafkaProducer(parse_either_name(config), **serializers)
    raise ConfigError([f"{name} must be sync or async, but is {kind!r}."])
