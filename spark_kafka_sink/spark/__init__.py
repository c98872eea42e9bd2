"""The sink as Spark sees it: the only package that knows pyspark.

``from spark_kafka_sink.spark import kafka_batches, write_kafka``. Names are imported on first use: a
Spark driver that looks up ``format("pykafka")`` imports no more than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink import import_public

if TYPE_CHECKING:
    from spark_kafka_sink.spark.kafka_write import (
        WriteResult,
        activate_session,
        kafka_batches,
        register_format,
        write_kafka,
    )

__all__ = ["WriteResult", "activate_session", "kafka_batches", "register_format", "write_kafka"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_public(f"{__name__}.kafka_write", name)


def __dir__() -> list[str]:
    """The public names only, which ``dir``, ``help`` and tab completion show."""
    return sorted(__all__)
