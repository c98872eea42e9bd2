"""The five codecs of the record format, framed as Java's client frames and reads them.

The libraries release the GIL while they compress. Joining the segments first is faster than feeding a streaming context
segment by segment (measured on batches of 16 KiB).
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import cramjam
import lz4.frame
import zstandard

from spark_kafka_sink.errors import CorruptRecordError

Segments = Sequence[bytes | memoryview]

CODEC_NAMES: Mapping[int, str] = MappingProxyType(dict(enumerate(("none", "gzip", "snappy", "lz4", "zstd"))))
CODEC_IDS: Mapping[str, int] = MappingProxyType({name: codec_id for codec_id, name in CODEC_NAMES.items()})
"""``compression.type`` → bits 0 to 2 of a batch's attributes."""

MAX_DECOMPRESSED_SIZE = 1 << 30
"""Default bound of ``decompress``, bytes."""

# Xerial's framing (snappy-java's SnappyOutputStream): magic, version and oldest compatible version, then blocks.
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

_JAVA_LZ4_DEFAULT_LEVEL = 9
_LZ4_FAST = 0
_LZ4_HIGH_LEVELS = (3, 12)

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_FEED = 1024

_GZIP_WBITS = 16 + zlib.MAX_WBITS

# Idle compressors by level: no two threads may share one, and making one costs a quarter of compressing 16 KiB.
# deque.pop and append are atomic; the thread that pops a compressor owns it.
_idle_zstd_compressors: dict[int, deque[zstandard.ZstdCompressor]] = {}


def compress(codec: str, level: int | None, segments: Segments) -> bytes:
    """The payload of a batch: its records, in segments, compressed.

    ``level`` None: the codec's default. gzip: -1 (default, zlib's 6), 1 to 9. lz4: 1 to 17; 9, the default, is the fast
    compressor as in Java (``CompressionType.LZ4``), every other level the high compressor (clamped to liblz4's 3 to
    12). zstd: -131072 to 22, default 3. none and snappy have no level.
    """
    data = b"".join(segments)
    match codec:
        case "gzip":
            return zlib.compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, _GZIP_WBITS)
        case "snappy":
            return _snappy(data)
        case "lz4":
            return _lz4(data, level)
        case "zstd":
            return _zstd(data, _ZSTD_DEFAULT_LEVEL if level is None else level)
        case _:
            return data


def decompress(codec_id: int, data: bytes | memoryview, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
    """The records of a batch whose attributes hold this codec id.

    Raises ``CorruptRecordError`` for an unknown codec, a broken payload and more than ``max_size`` bytes of records.
    """
    codec = CODEC_NAMES.get(codec_id)
    if codec is None:
        raise CorruptRecordError(f"unknown compression codec {codec_id}")
    try:
        records = _decompressed(codec, data, max_size + 1)
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError, struct.error, cramjam.DecompressionError) as error:
        raise CorruptRecordError(f"broken {codec} payload: {error}") from error
    if len(records) > max_size:
        raise CorruptRecordError(f"{codec} payload is larger than {max_size} bytes when decompressed")
    return records


def _decompressed(codec: str, data: bytes | memoryview, bound: int) -> bytes:
    """The decompressed records, at most about ``bound`` bytes. Raises ``EOFError`` if the payload ends early."""
    match codec:
        case "gzip":
            member = zlib.decompressobj(_GZIP_WBITS)
            return _complete(member.decompress(data, bound), member.eof, bound)
        case "snappy":
            return _unsnappy(memoryview(data), bound)
        case "lz4":
            frame = lz4.frame.LZ4FrameDecompressor()
            return _complete(frame.decompress(data, bound), frame.eof, bound)
        case "zstd":
            return _unzstd(data, bound)
        case _:
            return bytes(data[:bound])


def _complete(records: bytes, eof: bool, bound: int) -> bytes:
    if not eof and len(records) < bound:
        raise EOFError("it ends early")
    return records


def _snappy(data: bytes) -> bytes:
    blocks: list[bytes | memoryview] = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = memoryview(cramjam.snappy.compress_raw(memoryview(data)[start : start + _XERIAL_BLOCK_SIZE]))
        blocks += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(blocks)


def _unsnappy(data: memoryview, bound: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_HEADER[:8]:
        return _unsnappy_block(data, bound)
    blocks: list[bytes] = []
    size = 0
    start = len(_XERIAL_HEADER)
    while start < len(data) and size < bound:
        (length,) = _BLOCK_LENGTH.unpack_from(data, start)
        start += _BLOCK_LENGTH.size
        if not 0 <= length <= len(data) - start:
            raise EOFError("a block ends early")
        blocks.append(_unsnappy_block(data[start : start + length], bound - size))
        size += len(blocks[-1])
        start += length
    return b"".join(blocks)


def _unsnappy_block(block: memoryview, bound: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bound:
        raise CorruptRecordError("snappy block is too large when decompressed")
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(data: bytes, level: int | None) -> bytes:
    lowest, highest = _LZ4_HIGH_LEVELS
    fast = level is None or level == _JAVA_LZ4_DEFAULT_LEVEL
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=_LZ4_FAST if fast else max(lowest, min(level or 0, highest)),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,  # Java refuses dependent blocks
        content_checksum=False,
        store_size=False,
    )
    return frame


def _zstd(data: bytes, level: int) -> bytes:
    idle = _idle_zstd_compressors.setdefault(level, deque())
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    frame = compressor.compress(data)
    idle.append(compressor)
    return frame


def _unzstd(data: bytes | memoryview, bound: int) -> bytes:
    frame = zstandard.ZstdDecompressor().decompressobj()
    records: list[bytes] = []
    size = 0
    # zstandard does not bound its output: 4 bytes may become 128 KiB, so it is fed in small steps.
    for start in range(0, len(data), _ZSTD_FEED):
        records.append(frame.decompress(data[start : start + _ZSTD_FEED]))
        size += len(records[-1])
        if frame.eof or size >= bound:
            break
    return _complete(b"".join(records), frame.eof, bound)
