"""The five codecs of the record format, each framed as Java's client frames and reads it.

The libraries release the GIL while they compress. Joining the segments first costs less than feeding a streaming
context segment by segment (measured on batches of 16 KiB).
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import cramjam
import lz4.frame
import zstandard

from spark_kafka_sink.errors import CorruptRecordError

Segments = Sequence[bytes | memoryview]

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

# A compressor may not be shared by threads at one time, and making one costs a quarter of compressing 16 KiB with it.
# So idle ones wait here, by level: deque.pop and append are atomic, whoever pops owns it.
_idle_zstd_compressors: dict[int, deque[zstandard.ZstdCompressor]] = {}


def compress(codec: str, level: int | None, segments: Segments) -> bytes:
    """The records of one batch, in pieces, as the payload of a batch with this codec.

    ``level`` None: the codec's default. gzip: -1 (default, zlib's 6), 1 to 9. lz4: 1 to 17, of which 9, the default, is
    the fast compressor as in Java (``CompressionType.LZ4``) and every other one a level of the high compressor (3 to
    12 in liblz4; lower and higher ones mean these). zstd: -131072 to 22, default 3. none and snappy have no level.
    """
    return _CODECS[codec].compress(b"".join(segments), level)


def decompress(codec_id: int, data: bytes | memoryview, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
    """The records of a batch whose attributes name this codec.

    CorruptRecordError if they are broken, or would take more than ``max_size`` bytes.
    """
    try:
        codec = _CODECS[CODEC_NAMES[codec_id]]
    except KeyError:
        raise CorruptRecordError(f"unknown compression codec {codec_id}") from None
    try:
        records = codec.decompress(data, max_size + 1)
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError, struct.error, cramjam.DecompressionError) as error:
        raise CorruptRecordError(f"broken {CODEC_NAMES[codec_id]} payload: {error}") from error
    if len(records) > max_size:
        raise CorruptRecordError(f"{CODEC_NAMES[codec_id]} payload is over {max_size} bytes when decompressed")
    return records


def _copy(data: bytes, _level: int | None) -> bytes:
    return data


def _copy_bounded(data: bytes | memoryview, bound: int) -> bytes:
    return bytes(data[:bound])


def _gzip(data: bytes, level: int | None) -> bytes:
    return zlib.compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, _GZIP_WBITS)


def _gunzip(data: bytes | memoryview, bound: int) -> bytes:
    member = zlib.decompressobj(_GZIP_WBITS)
    records = member.decompress(data, bound)
    if not member.eof and len(records) < bound:
        raise EOFError("it ends early")
    return records


def _snappy(data: bytes, _level: int | None) -> bytes:
    pieces: list[bytes | memoryview] = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = memoryview(cramjam.snappy.compress_raw(memoryview(data)[start : start + _XERIAL_BLOCK_SIZE]))
        pieces += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _unsnappy(data: bytes | memoryview, bound: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_HEADER[:8]:
        return _unsnappy_block(view, bound)
    blocks: list[bytes] = []
    size = 0
    start = len(_XERIAL_HEADER)
    while start < len(view) and size < bound:
        (length,) = _BLOCK_LENGTH.unpack_from(view, start)
        start += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - start:
            raise EOFError("a block ends early")
        blocks.append(_unsnappy_block(view[start : start + length], bound - size))
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


def _unlz4(data: bytes | memoryview, bound: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    records: bytes = frame.decompress(data, bound)
    if not frame.eof and len(records) < bound:
        raise EOFError("it ends early")
    return records


def _zstd(data: bytes, level: int | None) -> bytes:
    level = _ZSTD_DEFAULT_LEVEL if level is None else level
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
    pieces: list[bytes] = []
    size = 0
    # The library bounds its input only: 4 bytes may become 128 KiB, so it is fed little by little.
    for start in range(0, len(data), _ZSTD_FEED):
        pieces.append(frame.decompress(data[start : start + _ZSTD_FEED]))
        size += len(pieces[-1])
        if frame.eof or size >= bound:
            break
    if not frame.eof and size < bound:
        raise EOFError("it ends early")
    return b"".join(pieces)


class _Codec(NamedTuple):
    id: int
    compress: Callable[[bytes, int | None], bytes]
    decompress: Callable[[bytes | memoryview, int], bytes]


_CODECS: Mapping[str, _Codec] = MappingProxyType(
    {
        "none": _Codec(0, _copy, _copy_bounded),
        "gzip": _Codec(1, _gzip, _gunzip),
        "snappy": _Codec(2, _snappy, _unsnappy),
        "lz4": _Codec(3, _lz4, _unlz4),
        "zstd": _Codec(4, _zstd, _unzstd),
    }
)
CODEC_IDS: Mapping[str, int] = MappingProxyType({name: codec.id for name, codec in _CODECS.items()})
"""``compression.type`` → the number in bits 0 to 2 of a batch's attributes."""
CODEC_NAMES: Mapping[int, str] = MappingProxyType({codec.id: name for name, codec in _CODECS.items()})
