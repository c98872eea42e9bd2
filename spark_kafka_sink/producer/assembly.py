"""Makes the parts of one producer from its configuration and connects them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NoReturn

from spark_kafka_sink.common.backoff import ExponentialBackoff
from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.forks import inherited_error
from spark_kafka_sink.common.metrics import NetworkCounters, ProducerMetrics
from spark_kafka_sink.network.calls import SOON_MS, Calls
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.transport import Transport
from spark_kafka_sink.producer.accumulator.accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.append.append import Appender
from spark_kafka_sink.producer.append.pending import PendingTopics, RecordPartitioning
from spark_kafka_sink.producer.partitioning.custom import CustomPartitioner
from spark_kafka_sink.producer.partitioning.kafka_partitioners import load_partitioner
from spark_kafka_sink.producer.sender.caller_calls import CallerCalls
from spark_kafka_sink.producer.sender.context import SenderContext
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.sender.sender_thread import SenderThread
from spark_kafka_sink.producer.topics import Topics
from spark_kafka_sink.producer.transactions.manager import TransactionManager
from spark_kafka_sink.producer.transactions.sequences import Sequences


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ProducerComponents:
    accumulator: RecordAccumulator
    appender: Appender
    pending: PendingTopics
    metadata: Metadata
    topics: Topics
    caller_calls: CallerCalls
    sender: Sender
    sender_thread: SenderThread
    clock: Clock
    transaction_manager: TransactionManager | None
    record_partitioning: RecordPartitioning | None


class InheritedParts:
    """Stands for the parts of a producer that a forked child inherited."""

    def __getattr__(self, name: str) -> NoReturn:
        raise inherited_error()


def assemble(
    config: ProducerConfig, transport: Transport, clock: Clock, random: Random, network: NetworkCounters | None = None
) -> ProducerComponents:
    """All parts of a producer; its sender thread is not started.

    ``config`` has a client.id. ``network``: what the transport counts, for the metrics.
    """
    sender_thread = SenderThread(transport, clock, f"kafka-producer-network-thread | {config.client_id}")
    client = NetworkClient(config, transport, random)
    metadata = Metadata(config, random, client, sender_thread)
    pool = BufferPool(config.buffer_memory, clock, sender_thread)
    metrics = ProducerMetrics(pool, pool.counters, network or NetworkCounters(), client.counters, metadata)
    accumulator = RecordAccumulator(config, pool, metrics, sender_thread)
    retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
    soon = ExponentialBackoff(SOON_MS, config.retry_backoff_max_ms, random)
    sequences = Sequences(config.enable_idempotence, config.transactional_id is not None)
    calls = Calls(client, metadata, config, random)
    manager = None
    if config.transactional_id is not None:
        manager = TransactionManager(config, accumulator, sequences, client, calls)
    partitioner = load_partitioner(config, random)
    appender = Appender(config, accumulator, metadata, partitioner, sender_thread, manager, clock)
    pending = PendingTopics(appender)
    record_partitioning = None
    if isinstance(partitioner, CustomPartitioner) and partitioner.per_record:
        record_partitioning = RecordPartitioning(partitioner, config, accumulator, pending)
    # Calls of their own: a transaction that fails stops its own only.
    caller_calls = CallerCalls(Calls(client, metadata, config, random), metadata, clock, sender_thread)
    context = SenderContext(
        accumulator=accumulator,
        metadata=metadata,
        client=client,
        calls=calls,
        backoff=retry_backoff,
        soon=soon,
        sequences=sequences,
        pending=pending,
        caller_calls=caller_calls,
        transactions=manager,
    )
    sender = pool.sender = Sender(config, context)
    return ProducerComponents(
        accumulator=accumulator,
        appender=appender,
        pending=pending,
        metadata=metadata,
        topics=Topics(config, metadata, clock, sender_thread),
        caller_calls=caller_calls,
        sender=sender,
        sender_thread=sender_thread,
        clock=clock,
        transaction_manager=manager,
        record_partitioning=record_partitioning,
    )
