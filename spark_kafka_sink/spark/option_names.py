"""The producer's options as a Spark write names them, with ``kafka.``, in the texts of errors and log lines."""

from __future__ import annotations

import re
from typing import Final

from spark_kafka_sink.common.config.table import OPTIONS_BY_NAME

# Not those of one word: acks and retries are words of sentences, too.
_PRODUCERS_OPTION: Final = re.compile(
    rf"(?<![\w.])(?:{'|'.join(re.escape(name) for name in OPTIONS_BY_NAME if '.' in name)})(?!\.?\w)"
)


def with_prefix(text: str) -> str:
    """``linger.ms`` becomes ``kafka.linger.ms``."""
    return _PRODUCERS_OPTION.sub(r"kafka.\g<0>", text)
