"""What exactly-once needs of the brokers whatever their settings are: transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.network.api_versions import (
    FIND_COORDINATOR_OF_TRANSACTION,
    INIT_PRODUCER_ID_WITH_IDENTITY,
    every,
)
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.diagnosis import missing_apis, require
from spark_kafka_sink.network.rpc import Rpc

TRANSACTION_APIS: Final = (
    ("find_coordinator", FIND_COORDINATOR_OF_TRANSACTION),
    ("init_producer_id", INIT_PRODUCER_ID_WITH_IDENTITY),
    ("add_partitions_to_txn", every("add_partitions_to_txn")),
    ("end_txn", every("end_txn")),
)
"""By kio's names, with the versions that exactly-once needs."""


def missing_transaction_apis(versions: ApiVersions) -> Iterator[str]:
    """A clause for each API that transactions need and the broker does not have."""
    yield from map(str, missing_apis(versions, TRANSACTION_APIS))


def require_transactions(rpc: Rpc, config: ProducerConfig, deadline: float) -> None:
    """Raises ``ExactlyOnceError`` if the brokers lack an API of transactions, and ``UnsupportedVersionError`` if they
    lack what the options of the producers need.
    """
    rpc.await_brokers(deadline)
    versions = rpc.any_api_versions()
    if versions is None:  # the connection was just lost; the first request tells what is missing
        return
    if missing := list(missing_transaction_apis(versions)):
        raise ExactlyOnceError(
            f"These brokers lack APIs of transactions that exactly-once needs: {'; '.join(missing)}. Use brokers (or a "
            "tier of the service) that have them, or deliveryGuarantee=at-least-once."
        )
    require(config, versions)
