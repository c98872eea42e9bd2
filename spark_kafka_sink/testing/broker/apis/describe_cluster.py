"""DescribeCluster (60): nodes and controller. Authorized operations: all, as of a Kafka without an authorizer."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext, endpoint
from spark_kafka_sink.testing.broker.state.cluster import CLUSTER_ID
from spark_kafka_sink.testing.broker.wire import Fields

_ALL_OPERATIONS: Final = 0b1111110100000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""


def handle(context: RequestContext) -> Fields:
    error = context.scripted()
    if error:
        return {"error_code": error, "error_message": error.name.upper()}
    alive = context.cluster.alive()
    asked = context.body.include_cluster_authorized_operations
    return {
        "error_code": ErrorCode.none,
        "cluster_id": CLUSTER_ID,
        "controller_id": alive[0].id if alive else -1,
        "brokers": [
            {"broker_id" if name == "node_id" else name: value for name, value in endpoint(context, node).items()}
            for node in alive
        ],
        **({"cluster_authorized_operations": _ALL_OPERATIONS} if asked else {}),
    }
