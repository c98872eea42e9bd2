"""CreatePartitions (37).

Emulated: a higher count, validate_only, each topic's own error.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.wire import Fields


def handle(context: RequestContext) -> Fields:
    return {"results": [_extend(context, asked) for asked in context.body.topics]}


def _extend(context: RequestContext, asked: Any) -> Fields:
    try:
        context.check_script(asked.name)
        context.cluster.create_partitions(asked.name, asked.count, dry=context.body.validate_only)
    except ApiError as refused:
        return {"name": asked.name, "error_code": refused.error, "error_message": refused.message}
    return {"name": asked.name, "error_code": ErrorCode.none}
