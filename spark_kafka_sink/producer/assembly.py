"""Puts one producer together: every part is made here, once, from the configuration."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random

from spark_kafka_sink.accumulator.accumulator import RecordAccumulator
from spark_kafka_sink.append.append import AppendConfig, ColumnarAppender
from spark_kafka_sink.append.pending import Staging, StagingConfig, StagingParts
from spark_kafka_sink.append.publish import AppendParts
from spark_kafka_sink.append.values_only import ValueAppender
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.metadata import Metadata, MetadataUpdater
from spark_kafka_sink.network.transport import Transport
from spark_kafka_sink.partitioning.loading import load_partitioner
from spark_kafka_sink.producer.transactions import ProducerTransactions
from spark_kafka_sink.sender.produce_request import ProduceSettings
from spark_kafka_sink.sender.produce_response_handler import (
    DeliveryPolicy,
    ProduceResponseHandler,
    ResponseHandlerParts,
)
from spark_kafka_sink.sender.sender import Sender, SenderParts
from spark_kafka_sink.sender.sender_thread import SenderThread
from spark_kafka_sink.transactions.calls import SOON_MS, CoordinatorCalls
from spark_kafka_sink.transactions.manager import TransactionManager
from spark_kafka_sink.transactions.producer_id import ProducerIdRequester
from spark_kafka_sink.transactions.sequences import Sequences

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ProducerParts:
    client_id: str
    accumulator: RecordAccumulator
    appender: ColumnarAppender
    staging: Staging
    metadata: Metadata
    sender: Sender
    sender_thread: SenderThread
    clock: Clock
    transactions: ProducerTransactions | None


@dataclass(frozen=True, slots=True)
class _Identity:
    """Whose the batches are: sequence numbers, and transactions if there are any."""

    client: NetworkClient
    retry_backoff: ExponentialBackoff
    sequences: Sequences
    transactions: TransactionManager | None


def assemble(
    config: ProducerConfig,
    transport: Transport,
    clock: Clock,
    random: Random,
) -> ProducerParts:
    """All parts of a producer, its sender thread not started yet."""
    accumulator = RecordAccumulator(config, clock)
    metadata = Metadata(config, random)
    partitioner = load_partitioner(config, random)
    append_config = AppendConfig(config.max_request_size, config.buffer_memory, config.max_block_ms, config.linger_ms)
    client_id = config.client_id or f"producer-{next(_numbers)}"
    sender_thread = SenderThread(transport, clock, f"pykafka-sender-{client_id}")
    identity = _identity(config, accumulator, metadata, transport, random)
    lost = None if identity.transactions is None else identity.transactions.records_lost
    append_parts = AppendParts(accumulator, metadata, partitioner, clock, transport.wakeup, sender_thread.wakeup, lost)
    appender = ColumnarAppender(append_config, append_parts)
    staging = _staging(config, appender, append_parts, sender_thread)
    sender = _sender(config, append_parts, staging, identity)
    transactions = None
    if identity.transactions is not None:
        transactions = ProducerTransactions(
            identity.transactions, sender_thread, staging.flush, config.max_block_ms, clock
        )
    return ProducerParts(
        client_id, accumulator, appender, staging, metadata, sender, sender_thread, clock, transactions
    )


def _identity(
    config: ProducerConfig, accumulator: RecordAccumulator, metadata: Metadata, transport: Transport, random: Random
) -> _Identity:
    client = NetworkClient(config, transport, random)
    retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
    transactional_id = config.transactional_id
    sequences = Sequences(config.enable_idempotence, transactional_id is not None)
    if transactional_id is None:
        return _Identity(client, retry_backoff, sequences, None)
    soon = ExponentialBackoff(SOON_MS, config.retry_backoff_max_ms, random)
    calls = CoordinatorCalls(client, metadata.candidates, retry_backoff, soon)
    timeout = config.transaction_timeout_ms
    manager = TransactionManager(transactional_id, timeout, accumulator, sequences, client, calls)
    return _Identity(client, retry_backoff, sequences, manager)


def _staging(
    config: ProducerConfig,
    appender: ColumnarAppender,
    parts: AppendParts,
    sender_thread: SenderThread,
) -> Staging:
    staging_config = StagingConfig(
        batch_size=config.batch_size,
        max_request_size=config.max_request_size,
        buffer_memory=config.buffer_memory,
        linger_ms=config.linger_ms,
        max_block_ms=config.max_block_ms,
    )
    staging_parts = StagingParts(
        appender=appender,
        value_appender=ValueAppender(parts, config.linger_ms),
        append=parts,
        metadata=parts.metadata,
        pool=parts.accumulator.pool,
        clock=parts.clock,
        callbacks=sender_thread.callbacks,
        wake_sender=parts.wake_sender,
        call_sender=parts.call_sender,
        run_inline=sender_thread.run_inline,
    )
    return Staging(staging_config, staging_parts)


def _sender(config: ProducerConfig, parts: AppendParts, staging: Staging, identity: _Identity) -> Sender:
    client, retry_backoff, sequences = identity.client, identity.retry_backoff, identity.sequences
    answer_parts = ResponseHandlerParts(
        parts.accumulator, sequences, parts.metadata, retry_backoff, identity.transactions
    )
    one_at_a_time = config.max_in_flight_requests_per_connection == 1
    policy = DeliveryPolicy(config.delivery_timeout_ms, config.retries, one_at_a_time)
    return Sender(
        SenderParts(
            policy=policy,
            produce=ProduceSettings(config.acks, config.request_timeout_ms),
            accumulator=parts.accumulator,
            client=client,
            metadata=parts.metadata,
            metadata_updater=MetadataUpdater(parts.metadata, parts.accumulator),
            sequences=sequences,
            producer_id=ProducerIdRequester(client, retry_backoff),
            answers=ProduceResponseHandler(policy, answer_parts),
            staged=staging,
            transactions=identity.transactions,
        )
    )
