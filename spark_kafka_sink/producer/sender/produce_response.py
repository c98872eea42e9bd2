"""``ProduceResponse``: what a Produce response says, in every version."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import Node
from spark_kafka_sink.network.error_table import error_code
from spark_kafka_sink.producer.accumulator.producer_batch import NO_TIMESTAMP

NO_ERROR = ErrorCode.none
"""A look-up of an Enum member per batch is felt."""

NO_THROTTLE: Final = timedelta(0)
NO_LIMIT: Final = 2**31
UNKNOWN_START: Final = -1
_RECORD_ERROR_BYTES: Final = 32
"""An error of a record has a message, but for those of other brokers than Apache Kafka's."""
_FEW_RECORD_ERRORS: Final = 1000


class PartitionResponse(NamedTuple):
    """``log_append_time`` in epoch ms, ``NO_TIMESTAMP`` without LogAppendTime. ``leader``, ``leader_epoch``: the new
    leader, if the broker no longer leads the partition and says so (KIP-951, from version 10 on).
    ``log_start_offset``: of a failure; ``UNKNOWN_START`` before version 5, and if the broker does not know it.
    """

    base_offset: int
    log_append_time: int = NO_TIMESTAMP
    error_code: ErrorCode = NO_ERROR
    error_message: str | None = None
    leader: Node | None = None
    leader_epoch: int = -1
    log_start_offset: int = UNKNOWN_START


class ProduceResponse(NamedTuple):
    """``partitions`` by (topic, partition), so a ``TopicPartition`` is a key."""

    partitions: Mapping[tuple[str, int], PartitionResponse]
    throttle_time: timedelta


def known_error(code: int, message: str | None) -> tuple[ErrorCode, str | None]:
    """The error of a code, and its message, which has the number of a code that this client does not know."""
    known = error_code(code)
    if known != code and message is None:
        message = f"the broker's error code is {code}, which this client does not know"
    return known, message


def most_record_errors(data: memoryview) -> int:
    """How many errors of single records a response of that size can have."""
    return len(data) // _RECORD_ERROR_BYTES + _FEW_RECORD_ERRORS


def wrong_count(count: int, left: int, limit: int) -> ValueError:
    """The error for an array that is null, has more than ``limit`` elements, or more than fit in ``left`` bytes."""
    if count < 0:
        return ValueError("an array is null that must not be")
    if count > limit:
        return ValueError(f"an array of {count} elements is announced, and at most {limit} are possible")
    return ValueError(f"an array of {count} elements is announced, and {left} bytes follow")
