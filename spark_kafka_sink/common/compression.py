"""The codecs of the record format, one row of ``_TABLE`` each. Payloads are framed as Java's client frames and
reads them.

The option compression.type, its levels, the command line, batches and ``TestBroker`` take codecs from here. A codec's
library is imported when the codec is first used, because Spark's driver reads the options and compresses nothing. The
libraries release the GIL while they compress.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from spark_kafka_sink.errors import CorruptRecordError

if TYPE_CHECKING:
    from zstandard import ZstdCompressor

Segments = Sequence[bytes | memoryview]

MAX_DECOMPRESSED_SIZE = 1 << 30
"""The default bound of ``decompress``, bytes."""

# Xerial's framing (snappy-java's SnappyOutputStream): magic, version and oldest compatible version, then blocks.
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

_JAVA_LZ4_DEFAULT_LEVEL = 9
_LZ4_FAST = 0
_LZ4_HIGH_LEVELS = (3, 12)

_ZSTD_FEED = 1024

_GZIP_WBITS = 16 + zlib.MAX_WBITS

_loaded: dict[str, Compression] = {}


class Level(NamedTuple):
    """The option ``compression.<codec>.level``, a number from ``lowest`` to ``highest``, or ``besides``."""

    default: int
    lowest: int
    highest: int
    besides: int | None = None


class Compression(Protocol):
    """The two functions of a codec (Java: ``Compression``). The constructor imports the library that they call."""

    errors: tuple[type[Exception], ...]
    """The errors that ``decompress`` raises for a broken payload."""

    def compress(self, data: bytes, level: int, /) -> bytes:
        """Compresses the records of a batch. ``level`` is 0 for a codec without levels."""

    def decompress(self, data: bytes | memoryview, bound: int, /) -> bytes:
        """The records of a payload, at most about ``bound`` bytes."""


class Codec(NamedTuple):
    """A codec. ``name``: its value of ``compression.type``. ``id``: its number in bits 0 to 2 of a batch's attributes.

    ``first_produce``: the lowest version of Produce that may carry such batches, 0 if every version may. ``since``: the
    Kafka release in which this version appeared.
    """

    name: str
    id: int
    compression: type[Compression]
    level: Level | None = None
    first_produce: int = 0
    since: str = ""


def load_codec(codec: str) -> Compression:
    """The functions of the codec. The first call in a process imports its library, and raises ``ImportError`` if the
    library is missing.
    """
    return _loaded.get(codec) or _loaded.setdefault(codec, CODECS[codec].compression())


def compress(codec: str, level: int | None, segments: Segments) -> bytes:
    """The payload of a batch: its records, in segments, compressed. ``level``: None for the codec's default."""
    if level is None:
        level = _DEFAULT_LEVELS[codec]
    # Joining first is faster than feeding a streaming context segment by segment (measured on batches of 16 KiB).
    return load_codec(codec).compress(b"".join(segments), level)


def decompress(codec_id: int, data: bytes | memoryview, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
    """The records of a batch whose attributes hold this codec id.

    Raises ``CorruptRecordError`` for an unknown codec, a broken payload and more than ``max_size`` bytes of records.
    """
    name = CODEC_NAMES.get(codec_id)
    if name is None:
        raise CorruptRecordError(f"unknown compression codec {codec_id}")
    compression = load_codec(name)
    try:
        records = compression.decompress(data, max_size + 1)
    except compression.errors as error:
        raise CorruptRecordError(f"broken {name} payload: {error}") from error
    if len(records) > max_size:
        raise CorruptRecordError(f"{name} payload is larger than {max_size} bytes when decompressed")
    return records


def _complete(records: bytes, eof: bool, bound: int) -> bytes:
    if not eof and len(records) < bound:
        raise EOFError("it ends early")
    return records


class _NoCompression(Compression):
    errors = ()

    def compress(self, data: bytes, level: int) -> bytes:
        return data

    def decompress(self, data: bytes | memoryview, bound: int) -> bytes:
        return bytes(data[:bound])


class _GzipCompression(Compression):
    errors = (EOFError, zlib.error)

    def compress(self, data: bytes, level: int) -> bytes:
        return zlib.compress(data, level, _GZIP_WBITS)

    def decompress(self, data: bytes | memoryview, bound: int) -> bytes:
        member = zlib.decompressobj(_GZIP_WBITS)
        return _complete(member.decompress(data, bound), member.eof, bound)


class _SnappyCompression(Compression):
    def __init__(self) -> None:
        import cramjam

        self._snappy = cramjam.snappy
        self.errors = (EOFError, struct.error, cramjam.DecompressionError)

    def compress(self, data: bytes, level: int) -> bytes:
        blocks: list[bytes | memoryview] = [_XERIAL_HEADER]
        for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
            block = memoryview(self._snappy.compress_raw(memoryview(data)[start : start + _XERIAL_BLOCK_SIZE]))
            blocks += (_BLOCK_LENGTH.pack(len(block)), block)
        return b"".join(blocks)

    def decompress(self, data: bytes | memoryview, bound: int) -> bytes:
        data = memoryview(data)
        if bytes(data[:8]) != _XERIAL_HEADER[:8]:
            return self._decompress_block(data, bound)
        blocks: list[bytes] = []
        size = 0
        start = len(_XERIAL_HEADER)
        while start < len(data) and size < bound:
            (length,) = _BLOCK_LENGTH.unpack_from(data, start)
            start += _BLOCK_LENGTH.size
            if not 0 <= length <= len(data) - start:
                raise EOFError("a block ends early")
            blocks.append(self._decompress_block(data[start : start + length], bound - size))
            size += len(blocks[-1])
            start += length
        return b"".join(blocks)

    def _decompress_block(self, block: memoryview, bound: int) -> bytes:
        if self._snappy.decompress_raw_len(block) > bound:
            raise CorruptRecordError("snappy block is too large when decompressed")
        return bytes(self._snappy.decompress_raw(block))


class _Lz4Compression(Compression):
    """Level 9, the default, is the fast compressor, as in Java (``CompressionType.LZ4``). Every other level is the high
    compressor, clamped to liblz4's 3 to 12.
    """

    errors = (EOFError, RuntimeError)

    def __init__(self) -> None:
        import lz4.frame

        self._lz4 = lz4.frame

    def compress(self, data: bytes, level: int) -> bytes:
        lowest, highest = _LZ4_HIGH_LEVELS
        fast = level == _JAVA_LZ4_DEFAULT_LEVEL
        frame: bytes = self._lz4.compress(
            data,
            compression_level=_LZ4_FAST if fast else max(lowest, min(level, highest)),
            block_size=self._lz4.BLOCKSIZE_MAX64KB,
            block_linked=False,  # Java refuses dependent blocks
            content_checksum=False,
            store_size=False,
        )
        return frame

    def decompress(self, data: bytes | memoryview, bound: int) -> bytes:
        frame = self._lz4.LZ4FrameDecompressor()
        return _complete(frame.decompress(data, bound), frame.eof, bound)


class _ZstdCompression(Compression):
    def __init__(self) -> None:
        import zstandard

        self._zstandard = zstandard
        self.errors = (EOFError, zstandard.ZstdError)
        # Idle compressors by level: no two threads may share one, and making one costs a quarter of compressing 16 KiB.
        # deque.pop and append are atomic; the thread that pops a compressor owns it.
        self._idle: dict[int, deque[ZstdCompressor]] = {}

    def compress(self, data: bytes, level: int) -> bytes:
        idle = self._idle.setdefault(level, deque())
        try:
            compressor = idle.pop()
        except IndexError:
            compressor = self._zstandard.ZstdCompressor(level=level)
        frame = compressor.compress(data)
        idle.append(compressor)
        return frame

    def decompress(self, data: bytes | memoryview, bound: int) -> bytes:
        frame = self._zstandard.ZstdDecompressor().decompressobj()
        records: list[bytes] = []
        size = 0
        # zstandard does not bound its output: 4 bytes may become 128 KiB, so it is fed in small steps.
        for start in range(0, len(data), _ZSTD_FEED):
            records.append(frame.decompress(data[start : start + _ZSTD_FEED]))
            size += len(records[-1])
            if frame.eof or size >= bound:
                break
        return _complete(b"".join(records), frame.eof, bound)


_GZIP_LEVEL = Level(zlib.Z_DEFAULT_COMPRESSION, 1, 9, besides=zlib.Z_DEFAULT_COMPRESSION)
_LZ4_LEVEL = Level(_JAVA_LZ4_DEFAULT_LEVEL, 1, 17)
_ZSTD_LEVEL = Level(3, -131072, 22)

_TABLE: Final = (
    Codec("none", 0, _NoCompression),
    Codec("gzip", 1, _GzipCompression, _GZIP_LEVEL),
    Codec("snappy", 2, _SnappyCompression),
    Codec("lz4", 3, _Lz4Compression, _LZ4_LEVEL),
    Codec("zstd", 4, _ZstdCompression, _ZSTD_LEVEL, first_produce=7, since="2.1"),
)  # fmt: skip

CODECS: Final[Mapping[str, Codec]] = MappingProxyType({codec.name: codec for codec in _TABLE})
CODEC_IDS: Final[Mapping[str, int]] = MappingProxyType({codec.name: codec.id for codec in _TABLE})
CODEC_NAMES: Final[Mapping[int, str]] = MappingProxyType({codec.id: codec.name for codec in _TABLE})
_DEFAULT_LEVELS: Final = {codec.name: codec.level.default if codec.level else 0 for codec in _TABLE}
