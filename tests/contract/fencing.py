"""InitProducerId from another process: what fences a producer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_IDENTITY, ProducerIdentity
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.producer.transactions.committer import CONNECTIONS, Committer, InitProducerIdOutcome
from spark_kafka_sink.producer.transactions.values import TransactionalIdentity


def fence(
    config: Mapping[str, object],
    transactional_id: str,
    timeout_ms: float = 60_000,
    held: TransactionalIdentity | None = None,
) -> TransactionalIdentity:
    (outcome,) = _init(config, {transactional_id: NO_IDENTITY if held is None else held.identity}, timeout_ms)
    if outcome.identity is None:
        assert outcome.error is not None
        raise outcome.error
    return outcome.identity


def fence_all(
    config: Mapping[str, object], transactional_ids: Iterable[str], timeout_ms: float
) -> list[InitProducerIdOutcome]:
    return _init(config, dict.fromkeys(transactional_ids, NO_IDENTITY), timeout_ms)


def _init(
    config: Mapping[str, object], latest: Mapping[str, ProducerIdentity], timeout_ms: float
) -> list[InitProducerIdOutcome]:
    parsed = ProducerConfig.parse(config)
    with closing(Rpc(parsed, SystemClock(), connections=CONNECTIONS)) as rpc:
        return Committer(rpc, parsed.transaction_timeout_ms).init_producer_ids(latest, timeout_ms)
