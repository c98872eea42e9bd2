"""The producer's options as a Spark write names them, with ``kafka.``, in the texts of errors and log lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.common.config.producer_config import OPTIONS_BY_NAME
from spark_kafka_sink.errors import BrokerError

# Names of one word are left out, because sentences have acks and retries, too. Topics have settings of the same names.
_PRODUCERS_OPTION: Final = re.compile(
    rf"(?<![\w.])(?<!topic's )(?:{'|'.join(re.escape(name) for name in OPTIONS_BY_NAME if '.' in name)})(?!\.?\w)"
)


def with_prefix(text: str, *errors: object) -> str:
    """``linger.ms`` becomes ``kafka.linger.ms``, except in the words of a broker that one of ``errors`` or its causes
    has.
    """
    words = "|".join(re.escape(said) for error in errors for said in _said_by_brokers(error))
    parts = re.split(f"({words})", text) if words else [text]
    parts[::2] = [_PRODUCERS_OPTION.sub(r"kafka.\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def _said_by_brokers(error: object) -> Iterator[str]:
    while isinstance(error, BaseException):
        if isinstance(error, BrokerError) and error.said:
            yield error.said
        error = error.__cause__
