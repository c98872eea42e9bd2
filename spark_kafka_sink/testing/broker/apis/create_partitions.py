"""CreatePartitions (37).

Emulated: a higher count, validate_only, each topic's own error.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.call import Call
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.wire import Fields


def handle(call: Call) -> Fields:
    return {"results": [_extend(call, asked) for asked in call.body.topics]}


def _extend(call: Call, asked: Any) -> Fields:
    try:
        call.check_script(asked.name)
        call.cluster.create_partitions(asked.name, asked.count, dry=call.body.validate_only)
    except ApiError as refused:
        return {"name": asked.name, "error_code": refused.error, "error_message": refused.message}
    return {"name": asked.name, "error_code": ErrorCode.none}
