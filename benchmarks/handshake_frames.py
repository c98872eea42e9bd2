"""CPU of decoding the most expensive frames of 1 MiB that a peer can send before the login.

python -m benchmarks.handshake_frames
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.connection import MAX_HANDSHAKE_FRAME_BYTES
from spark_kafka_sink.network.handshake import negotiate_api_versions
from spark_kafka_sink.network.messages import decode_response, response_type

_ROUNDS = 5


def _compact(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def frames() -> Iterator[tuple[str, bytes, Callable[[bytes], Any]]]:
    """Name, bytes after the correlation id, and what the client does with them."""
    size = MAX_HANDSHAKE_FRAME_BYTES - 64

    def versions(data: bytes) -> None:
        handshake = negotiate_api_versions("peer")
        next(handshake)
        handshake.send(memoryview(data))

    def read(api: str, version: int) -> Callable[[bytes], Any]:
        return lambda data: decode_response(memoryview(data), response_type(api, version))

    keys = size // 7
    entries = b"".join(struct.pack(">hhhb", index % 90, 0, 3, 0) for index in range(keys))
    yield "ApiVersions, API keys", b"\0\0" + _compact(keys + 1) + entries + bytes(5), versions
    yield "ApiVersions, API keys, cut", b"\0\0" + _compact(keys + 1) + entries, versions
    for name, least, counted in (("features", 6, 10), ("empty features", 6, 6)):
        value = _compact(size // counted + 1) + (b"\1" + bytes(least - 1)) * (size // counted)
        tagged = b"\1\0" + _compact(len(value)) + value
        yield f"ApiVersions, {name}", (b"\0\0\1" + bytes(4) + tagged).ljust(size, b"\0"), versions
    for counted in (2, 6):
        names = struct.pack(">hi", 0, size // counted) + bytes(size // counted * 2)
        yield f"SaslHandshake, mechanisms of {counted} bytes", names.ljust(size, b"\0"), read("sasl_handshake", 1)
    tags = b"\0\0\0\0\1" + bytes(8) + _compact(size // 2) + b"\x09\0" * (size // 2)
    yield "SaslAuthenticate, tagged fields", tags, read("sasl_authenticate", 2)
    yield "SaslAuthenticate, bytes", b"\0\0\0\0" + _compact(size) + bytes(size) + bytes(9), read("sasl_authenticate", 2)


def main() -> None:
    most = 0.0
    for name, data, use in frames():
        taken = []
        for _ in range(_ROUNDS):
            began = time.thread_time()
            with suppress(KafkaError, StopIteration):
                use(data)
            taken.append(time.thread_time() - began)
        most = max(most, min(taken))
        sys.stdout.write(f"{min(taken):.3f} s  {name}\n")
    sys.stdout.write(f"{most:.3f} s  the most\n")


if __name__ == "__main__":
    main()
