"""``SyncProducer``: sends and waits, without a thread or batches over time (Kafka 0.8: ``producer.type=sync``)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random
from types import TracebackType

import numpy as np
from kio.schema.errors import ErrorCode

from spark_kafka_sink.accumulator.producer_batch import NO_TIMESTAMP, UNKNOWN_OFFSET
from spark_kafka_sink.append.pending_records import size_estimate
from spark_kafka_sink.append.record import ProducerRecord, RecordMetadata
from spark_kafka_sink.append.rows import check_sizes
from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.errors import (
    FailedToSendError,
    InvalidRecordError,
    KafkaError,
    NetworkError,
    ProducerClosedError,
    UnsupportedVersionError,
)
from spark_kafka_sink.model import NO_LEADER, TopicPartition
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import Response
from spark_kafka_sink.network.error_table import Action, action, broker_error
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.rpc import InlineNetwork, MakeRequest
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.transport import Transport
from spark_kafka_sink.partitioning.loading import load_partitioner
from spark_kafka_sink.producer.collate import Collator, Message, batch_of, chunks
from spark_kafka_sink.producer.serializers import BytesSerializer, Serializer
from spark_kafka_sink.producer.sync_config import SyncConfig
from spark_kafka_sink.sender.produce_api import PartitionResponse, ProduceResponse, produce_request

_log = logging.getLogger("spark_kafka_sink.producer")


class _Fates:
    """What became of the messages of one call, by their places."""

    def __init__(self) -> None:
        self.delivered: dict[int, RecordMetadata] = {}
        self.errors: dict[int, Exception] = {}

    def deliver(self, group: Sequence[Message], partition: int, base_offset: int, log_append_time: int) -> None:
        for index, message in enumerate(group):
            self.errors.pop(message.place, None)
            self.delivered[message.place] = RecordMetadata(
                message.topic,
                partition,
                UNKNOWN_OFFSET if base_offset == UNKNOWN_OFFSET else base_offset + index,
                message.timestamp if log_append_time == NO_TIMESTAMP else log_append_time,
                -1 if message.key is None else len(message.key),
                -1 if message.value is None else len(message.value),
            )

    def fail(self, group: Sequence[Message], error: Exception) -> None:
        self.errors.update((message.place, error) for message in group)


class SyncProducer:
    """Each ``send`` groups its records by leader and partition, sends them, and returns when they are in the log.

    At least once: what failed is sent again, up to ``message.send.max.retries`` (3) times, ``retry.backoff.ms`` (100)
    apart and after the metadata was fetched anew; a lost answer makes that a second time. Unkeyed records of a topic
    all go to one random partition until then, and at most for ``topic.metadata.refresh.interval.ms`` (10 min).
    ``config`` has these and Kafka's own options. Not to be shared by threads.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
    ) -> None:
        self.config = SyncConfig.parse(config)
        self._key_serializer = key_serializer or BytesSerializer()
        self._value_serializer = value_serializer or BytesSerializer()
        self._key_serializer.configure(config, True)
        self._value_serializer.configure(config, False)
        kafka, random = self.config.kafka, Random()
        self._clock: Clock = SystemClock()
        self._collator = Collator(load_partitioner(kafka, random), kafka.partitioner_ignore_keys, random)
        transport: Transport = Selector(kafka.send_buffer_bytes, kafka.receive_buffer_bytes)
        client = NetworkClient(kafka, transport, random)
        metadata = Metadata(kafka, random)
        self._network = InlineNetwork(client, metadata, transport, self._clock, kafka.request_timeout_ms)
        self._refreshed_at = self._clock.now()
        self._closed = False

    def send(self, *records: ProducerRecord) -> list[RecordMetadata]:
        """Send these records together; gives where each is, in their order. Offsets are -1 with acks=0.

        Raises before anything is sent: ``KafkaTimeoutError`` for a topic not known within max.block.ms,
        ``RecordTooLargeError``, ``InvalidRecordError`` or what a serializer raises. Raises ``FailedToSendError`` for
        records that could not be sent. More than max.request.size bytes go in several requests, one after the other.
        """
        if self._closed:
            raise ProducerClosedError("The producer is closed. Open a new one.")
        if not records:
            return []
        messages = [self._message(place, record) for place, record in enumerate(records)]
        check_sizes(
            np.array([each.size for each in messages]), {"max.request.size": self.config.kafka.max_request_size}
        )
        self._await_topics(messages)
        fates = _Fates()
        for chunk in chunks(messages, self.config.kafka.max_request_size):
            self._handle(chunk, fates)
            if fates.errors:
                error = fates.errors[min(fates.errors)]
                raise FailedToSendError(
                    f"Failed to send {len(fates.errors)} of {len(records)} records, the first because of: {error}",
                    fates.errors,
                    fates.delivered,
                ) from error
        return [fates.delivered[place] for place in range(len(records))]

    def close(self) -> None:
        """End the connections. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._network.close()
            self._key_serializer.close()
            self._value_serializer.close()

    def __enter__(self) -> SyncProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _message(self, place: int, record: ProducerRecord) -> Message:
        if not isinstance(record, ProducerRecord):
            raise InvalidRecordError(f"send takes ProducerRecords, not {record!r:.80}.", place)
        key = self._key_serializer.serialize(record.topic, record.key)
        value = self._value_serializer.serialize(record.topic, record.value)
        headers = record.headers or ()
        size = int(size_estimate(headers, key, value)[0])
        timestamp = self._clock.epoch_ms() if record.timestamp is None else record.timestamp
        return Message(place, record.topic, key, value, record.partition, timestamp, headers, size)

    def _await_topics(self, messages: Sequence[Message]) -> None:
        highest: dict[str, int | None] = {}
        for message in messages:
            known = highest.setdefault(message.topic, message.partition)
            if message.partition is not None and (known is None or message.partition > known):
                highest[message.topic] = message.partition
        deadline = self._clock.now() + self.config.kafka.max_block_ms
        for topic, partition in highest.items():
            self._network.await_topic(topic, partition, max(0.0, deadline - self._clock.now()))

    def _handle(self, messages: Sequence[Message], fates: _Fates) -> None:
        """Send, and send again what failed and may yet succeed."""
        interval = self.config.topic_metadata_refresh_interval_ms
        if 0 <= interval <= self._clock.now() - self._refreshed_at:
            self._refresh()
        backoff = self.config.kafka.retry_backoff_ms
        outstanding = self._dispatch(messages, fates)
        for remaining in reversed(range(self.config.message_send_max_retries)):
            if not outstanding:
                return
            _log.info(
                "Back off for %d ms before sending %d records again (%d retries remain): %s",
                backoff, len(outstanding), remaining, fates.errors[outstanding[0].place],
            )  # fmt: skip
            self._network.pause(backoff)
            self._refresh()
            outstanding = self._dispatch(outstanding, fates)

    def _refresh(self) -> None:
        self._network.refresh()
        self._collator.forget()
        self._refreshed_at = self._clock.now()

    def _dispatch(self, messages: Sequence[Message], fates: _Fates) -> list[Message]:
        """One request to each leader; gives the messages that failed and may be sent again."""
        collated = self._collator.by_leader(messages, self._network.snapshot)
        again: list[Message] = []
        for partition, group in collated.pop(NO_LEADER, {}).items():
            fates.fail(group, broker_error(ErrorCode.leader_not_available, str(partition)))
            again += group
        requests = {node: self._request(groups) for node, groups in collated.items()}
        for node, ended in self._network.exchange(requests).items():
            again += _judge(collated[node], ended, fates)
        return sorted(again, key=lambda message: message.place)

    def _request(self, groups: Mapping[TopicPartition, Sequence[Message]]) -> MakeRequest:
        kafka = self.config.kafka
        level = kafka.compression_level
        batches = [batch_of(partition, group, kafka.compression_type, level) for partition, group in groups.items()]
        return lambda on_complete: produce_request(batches, kafka, on_complete)


def _judge(
    groups: Mapping[TopicPartition, Sequence[Message]], ended: Response | KafkaError, fates: _Fates
) -> list[Message]:
    """What one request came to; gives the messages that may be sent again."""
    error = ended if isinstance(ended, KafkaError) else ended.error
    body = None if isinstance(ended, KafkaError) else ended.body
    answers: Mapping[tuple[str, int], PartitionResponse] = {}
    if isinstance(body, ProduceResponse):
        answers = body.partitions
        if answers.keys() != groups.keys():
            error = NetworkError(
                f"Incomplete response: asked for {', '.join(map(str, groups))}, answered for "
                f"{', '.join(f'{topic}-{index}' for topic, index in answers) or 'none'}"
            )
    again: list[Message] = []
    for partition, group in groups.items():
        if error is not None:
            fates.fail(group, error)
            again += [] if isinstance(error, UnsupportedVersionError) else group
        elif body is None:
            fates.deliver(group, partition.partition, UNKNOWN_OFFSET, NO_TIMESTAMP)
        elif _failed(partition, group, answers[partition], fates):
            again += group
    return again


def _failed(partition: TopicPartition, group: Sequence[Message], answer: PartitionResponse, fates: _Fates) -> bool:
    """Whether the partition's messages failed and may be sent again."""
    what = action("produce", answer.error_code)
    if what is Action.SUCCEED:
        fates.deliver(group, partition.partition, answer.base_offset, answer.log_append_time)
        return False
    fates.fail(group, broker_error(answer.error_code, str(partition), answer.error_message))
    return what < Action.SPLIT
