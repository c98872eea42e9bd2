"""What the sink keeps in a process from one write to the next."""

from __future__ import annotations

import sys

_PACKAGE = "spark_kafka_sink"


def forget_writes() -> None:
    """Ends it as the process would. A producer that outlived its test would connect to the broker of a later test, on
    the same port; a session would know that one's ledger; and of two warnings only the first is shown."""
    if (write := sys.modules.get(f"{_PACKAGE}.spark.write")) is not None:
        cache = write.PRODUCERS
        with cache._lock:
            kept, cache._idle = cache._idle, {}
        for idle in kept.values():
            idle.producer.close(0)
    if (session := sys.modules.get(f"{_PACKAGE}.exactly_once.session")) is not None:
        session.close_sessions()
    for name in ("ledger_topic", "sweep"):
        if (module := sys.modules.get(f"{_PACKAGE}.exactly_once.{name}")) is not None:
            module._warned.clear()
