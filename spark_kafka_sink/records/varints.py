"""Varints, one at a time.

They are zigzag-encoded (Protocol Buffers' ``sint``; Java: ``ByteUtils.writeVarint`` and ``writeVarlong``), unless their
name says unsigned (``ByteUtils.writeUnsignedVarint``). For example, 300 becomes 600 by zigzag, which is 0b100_1011000:
the low seven bits come first, with the top bit set because more follow, so its varint is ``d8 04``; -1 becomes 1, so
its varint is ``01``.
"""

from __future__ import annotations

from functools import lru_cache


def encode_varint(value: int) -> bytes:
    """The varint of one int64: 1 to 10 bytes."""
    return encode_unsigned_varint((value << 1) ^ (value >> 63))


cached_varint = lru_cache(maxsize=1 << 16)(encode_varint)


def encode_unsigned_varint(value: int) -> bytes:
    """The varint of a number that is not negative, without zigzag."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint_size(value: int) -> int:
    """``len(encode_varint(value))``."""
    return max(1, (((value << 1) ^ (value >> 63)).bit_length() + 6) // 7)
