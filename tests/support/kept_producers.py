"""The producers that the sink keeps for later tasks of a process."""

from __future__ import annotations

import sys


def close_kept_producers() -> None:
    """Closes them. One that outlived its test would connect to the broker of a later test, on the same port."""
    module = sys.modules.get("spark_kafka_sink.spark.write")
    if module is None:
        return
    cache = module.PRODUCERS
    with cache._lock:
        kept, cache._idle = cache._idle, {}
    for idle in kept.values():
        idle.producer.close(0)
