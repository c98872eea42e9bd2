"""Option names of other Kafka clients, librdkafka's and kafka-python's, that their users bring along."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_LOGIN: Final = "user and password are in {prefix}sasl.jaas.config, with the login module of {prefix}sasl.mechanism"
_CA: Final = "write {prefix}ssl.truststore.location, which takes a PEM file as well"
_KEY: Final = "write {prefix}ssl.keystore.location, which takes a PEM file with the key and its certificates"

_INSTEAD: Final[Mapping[str, str]] = MappingProxyType({
    "sasl.username": _LOGIN,
    "sasl.password": _LOGIN,
    "sasl.plain.username": _LOGIN,
    "sasl.plain.password": _LOGIN,
    "ssl.ca.location": _CA,
    "ssl.cafile": _CA,
    "ssl.ca.pem": "write {prefix}ssl.truststore.certificates",
    "ssl.certificate.location": _KEY,
    "ssl.certfile": _KEY,
    "ssl.key.location": _KEY,
    "ssl.keyfile": _KEY,
    "enable.ssl.certificate.verification": (
        "certificates are always verified; an empty {prefix}ssl.endpoint.identification.algorithm accepts any host name"
    ),
    "queue.buffering.max.ms": "write {prefix}linger.ms",
    "queue.buffering.max.kbytes": "write {prefix}buffer.memory, in bytes",
    "message.max.bytes": "write {prefix}max.request.size",
    "message.timeout.ms": "write {prefix}delivery.timeout.ms",
})  # fmt: skip


def other_clients_name(name: str, written: str, prefix: str) -> str | None:
    """The fault of a name that another client has for an option; None for any other name. ``written``: the name as it
    was given, with its prefix if it had one. ``prefix``: that of the names to write instead.
    """
    instead = _INSTEAD.get(name.replace("_", "."))
    if instead is None:
        return None
    return f"{written} is not an option of Kafka's Java producer: {instead.format(prefix=prefix)}."
