"""What exactly-once needs of the brokers whatever their settings are: transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.producer.transactions.requests import ADD_PARTITIONS, INIT_PRODUCER_ID
from spark_kafka_sink.producer.transactions.values import END_TXN_V1, END_TXN_V2

_FIND_TRANSACTION_COORDINATOR: Final = (1, 6)
"""Version 0 finds the coordinators of groups only."""

TRANSACTION_APIS: Final = (
    ("find_coordinator", _FIND_TRANSACTION_COORDINATOR),
    ("init_producer_id", INIT_PRODUCER_ID),
    ("add_partitions_to_txn", ADD_PARTITIONS),
    ("end_txn", (END_TXN_V1, END_TXN_V2)),
)
"""By kio's names, with our versions."""


def missing_transaction_apis(versions: ApiVersions) -> Iterator[str]:
    """A clause for each API that transactions need and the broker does not have."""
    for api, ours in TRANSACTION_APIS:
        try:
            versions.pick(API_KEYS[api], *ours)
        except UnsupportedVersionError as error:
            yield str(error)


def require_transactions(rpc: Rpc, deadline: float) -> None:
    """Raises ``ExactlyOnceError`` if the brokers lack an API of transactions."""
    rpc.await_brokers(deadline)
    versions = rpc.any_api_versions()
    if versions is None:  # the connection was just lost; the first request tells what is missing
        return
    if missing := list(missing_transaction_apis(versions)):
        raise ExactlyOnceError(
            f"These brokers have no transactions, which exactly-once needs: {'; '.join(missing)}. Use brokers (or a "
            "tier of the service) with transactions, or deliveryGuarantee=at-least-once."
        )
