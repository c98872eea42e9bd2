"""PRODUCER_FENCED came with KIP-588: older versions of an API have INVALID_PRODUCER_EPOCH instead."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError


def fenced(context: RequestContext, refused: ApiError, since: int) -> ErrorCode:
    """The error code for this version; ``since``: the first version that knows PRODUCER_FENCED."""
    if refused.error is ErrorCode.producer_fenced and context.version < since:
        return ErrorCode.invalid_producer_epoch
    return refused.error
