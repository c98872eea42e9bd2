"""InitProducerId from another process: what fences a producer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_IDENTITY
from spark_kafka_sink.exactly_once.committer import CONNECTIONS, Committer
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.producer.transaction_requests import END_TXN_V1, TransactionalIdentity


def fence(
    config: Mapping[str, object],
    transactional_id: str,
    timeout_ms: float = 60_000,
    held: TransactionalIdentity | None = None,
) -> TransactionalIdentity:
    parsed = ProducerConfig.parse(config)
    with closing(Rpc(parsed, SystemClock(), connections=CONNECTIONS)) as rpc:
        committer = Committer(rpc, parsed.transaction_timeout_ms)
        unknown = TransactionalIdentity(transactional_id, *NO_IDENTITY, END_TXN_V1)
        return committer.init_producer_id(held or unknown, timeout_ms)
