"""Bytes in, frames out: a frame is a 4-byte size and as many bytes."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.errors import WrongProtocolError

SIZE_BYTES = 4
CORRELATION_ID_BYTES = 4
MAX_FRAME_BYTES = 100 * 1024 * 1024

# What a peer says first, what speaks like that, and what to do. Read as a size, each is above MAX_FRAME_BYTES.
_FOREIGN_PROTOCOLS = (
    (b"\x15\x03", "a TLS server", "use the plaintext listener's port, or set security.protocol=SSL or SASL_SSL"),
    (b"\x16\x03", "a TLS server", "use the plaintext listener's port, or set security.protocol=SSL or SASL_SSL"),
    (b"HTTP", "an HTTP server", "use the port of a Kafka listener in bootstrap.servers"),
    (b"SSH-", "an SSH server", "use the port of a Kafka listener in bootstrap.servers"),
)


class FrameBuffer:
    """Holds the beginning of a frame until the rest of it is there: never more than one frame and one read."""

    __slots__ = ("_buffer", "_peer")

    def __init__(self, peer: str) -> None:
        self._buffer = bytearray()
        self._peer = peer

    def feed(self, data: bytes) -> Iterator[bytearray]:
        """The frames, without their sizes, that ``data`` completes. Read it to its end before feeding more.

        Raises ``WrongProtocolError`` at a size no broker sends; the buffer is of no use afterwards.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= SIZE_BYTES:
            size = int.from_bytes(buffer[start : start + SIZE_BYTES], "big", signed=True)
            if not CORRELATION_ID_BYTES <= size <= MAX_FRAME_BYTES:
                raise WrongProtocolError(_foreign(self._peer, bytes(buffer[start : start + SIZE_BYTES]), size))
            end = start + SIZE_BYTES + size
            if len(buffer) < end:
                break
            yield buffer[start + SIZE_BYTES : end]
            start = end
        del buffer[:start]


def _foreign(peer: str, first: bytes, size: int) -> str:
    for opening, server, advice in _FOREIGN_PROTOCOLS:
        if first.startswith(opening):
            return f"{peer} answered like {server}: {advice}"
    return (
        f"{peer} answered with a frame of {size} bytes, which no Kafka broker does "
        f"(the limit is {MAX_FRAME_BYTES}): is this the port of a Kafka listener?"
    )
