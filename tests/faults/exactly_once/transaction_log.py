"""What the transaction coordinator knows of an id, written to its own log as if weeks of use had led there.

A broker lets the admin client write to internal topics, and reads this one when it starts to coordinate it.
"""

from __future__ import annotations

import struct

from confluent_kafka import Producer

LAST_EPOCH = 32_766
"""A producer id has no epoch after this one: the next owner gets another producer id."""

_ADMIN_CLIENT = "__admin_client"
_EMPTY = 0
_TIMEOUT_MS = 60_000
_DEADLINE_S = 30.0


def age(servers: str, transactional_id: str, producer_id: int, epoch: int) -> None:
    """Only for an id with no transaction open, and a log of one partition."""
    name = transactional_id.encode()
    key = struct.pack(">hh", 0, len(name)) + name
    no_partitions, never = -1, 0
    value = struct.pack(">hqhibiqq", 0, producer_id, epoch, _TIMEOUT_MS, _EMPTY, no_partitions, never, never)
    refused = []
    producer = Producer({"bootstrap.servers": servers, "client.id": _ADMIN_CLIENT})
    producer.produce("__transaction_state", value, key, 0, on_delivery=lambda error, _: refused.append(error))
    producer.flush(_DEADLINE_S)
    assert refused == [None]
