"""The sink as Spark sees it: the only package that knows pyspark.

``from spark_kafka_sink.spark import write_kafka, kafka_batches``. Names are imported on first use: a Spark driver that
looks up ``format("pykafka")`` imports no more than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_kafka_sink.spark.kafka_write import kafka_batches, write_kafka
    from spark_kafka_sink.spark.write_result import WriteResult

__all__ = ["WriteResult", "kafka_batches", "write_kafka"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = "write_result" if name == "WriteResult" else "kafka_write"
    return getattr(import_module(f"{__name__}.{home}"), name)
