"""On the driver: whether the brokers speak what the options ask for."""

from __future__ import annotations

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.spark.options import SinkOptions

_checked: set[object] = set()


def ensure_asked_idempotence(options: SinkOptions) -> None:
    """Raises ``UnsupportedVersionError`` if ``kafka.enable.idempotence=true`` was given and the brokers lack it.

    Other options connect to no broker on the driver: there the first task says what is missing, before its first row.
    Exactly-once and topicCreation check on their own connections.
    """
    config = options.producer
    checked_elsewhere = options.exactly_once is not None or options.topic_creation is not None
    if not config.asks_for_idempotence or checked_elsewhere or config in _checked:
        return
    from spark_kafka_sink.network.broker_requirements import require
    from spark_kafka_sink.network.rpc import Rpc

    rpc = Rpc(config, SystemClock())
    try:
        rpc.await_brokers(rpc.now() + config.max_block_ms)
        require(config, rpc.any_api_versions())
    finally:
        rpc.close()
    _checked.add(config)
