import struct
import subprocess
import sys

import lz4.frame
import pytest

from spark_kafka_sink.common.compression import CODEC_IDS, compress, decompress
from spark_kafka_sink.errors import CorruptRecordError

TEXT = b"the quick brown fox jumps over the lazy dog " * 5_000
LEVELS = [
    *((codec, None) for codec in CODEC_IDS),
    *[("gzip", -1), ("gzip", 9), ("lz4", 1), ("lz4", 17), ("zstd", -7), ("zstd", 22)],
]
COMPRESSING = [codec for codec in CODEC_IDS if codec != "none"]


@pytest.mark.parametrize(("codec", "level"), LEVELS)
@pytest.mark.parametrize("segments", [[], [b""], [TEXT[:10], memoryview(TEXT)[10:]], [TEXT]])
def test_what_was_compressed_comes_back(codec, level, segments):
    payload = compress(codec, level, segments)
    assert type(payload) is bytes
    assert decompress(CODEC_IDS[codec], payload) == b"".join(segments)
    assert decompress(CODEC_IDS[codec], memoryview(payload)) == b"".join(segments)


def test_lz4_frames_are_those_java_reads_and_its_default_level_is_the_fast_compressor():
    frame = compress("lz4", None, [TEXT])
    info = lz4.frame.get_frame_info(frame)
    assert (info["block_linked"], info["content_checksum"], info["block_size"]) == (False, False, 64 * 1024)
    assert frame == compress("lz4", 9, [TEXT])
    assert frame != compress("lz4", 8, [TEXT])
    assert frame == lz4.frame.compress(TEXT, compression_level=0, block_linked=False, store_size=False)


def test_snappy_is_framed_in_xerial_blocks_of_32_kib():
    payload = compress("snappy", None, [TEXT[: 32 * 1024 + 1]])
    assert payload[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    (first,) = struct.unpack_from(">i", payload, 16)
    (second,) = struct.unpack_from(">i", payload, 20 + first)
    assert 24 + first + second == len(payload)
    assert second == 3  # length 1, literal tag, one byte


def test_bare_snappy_is_read_too():
    bare = compress("snappy", None, [TEXT[:1000]])[20:]
    assert decompress(CODEC_IDS["snappy"], bare) == TEXT[:1000]


@pytest.mark.parametrize("codec", list(CODEC_IDS))
def test_more_than_the_bound_is_refused(codec):
    payload = compress(codec, None, [TEXT])
    assert decompress(CODEC_IDS[codec], payload, max_size=len(TEXT)) == TEXT
    with pytest.raises(CorruptRecordError, match=f"{codec} .*large|{codec} payload is larger than"):
        decompress(CODEC_IDS[codec], payload, max_size=len(TEXT) - 1)


def test_a_bomb_is_refused_before_it_has_gone_off():
    bomb = compress("zstd", None, [bytes(1 << 28)])
    with pytest.raises(CorruptRecordError):
        decompress(CODEC_IDS["zstd"], bomb, max_size=1000)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("harm", [lambda payload: payload[:-9], lambda payload: b"\xff" * 40], ids=["cut", "garbage"])
def test_a_broken_payload_is_refused(codec, harm):
    with pytest.raises(CorruptRecordError):
        decompress(CODEC_IDS[codec], harm(compress(codec, None, [TEXT])))


def test_an_unknown_codec_is_refused():
    with pytest.raises(CorruptRecordError, match="codec 5"):
        decompress(5, b"")


@pytest.mark.parametrize(("codec", "library"), [("snappy", "cramjam"), ("lz4", "lz4.frame"), ("zstd", "zstandard")])
@pytest.mark.parametrize("producer", ["KafkaProducer", "SyncProducer"])
def test_a_missing_library_is_an_error_of_the_producers_that_compress_with_it(producer, codec, library):
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"from spark_kafka_sink import {producer}\n"
        f"for codec in {[each for each in CODEC_IDS if each != codec]}:\n"
        f"    {producer}({{'bootstrap.servers': 'localhost:1', 'compression.type': codec}}).close()\n"
        f"{producer}({{'bootstrap.servers': 'localhost:1', 'compression.type': {codec!r}}})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"ModuleNotFoundError: import of {library} halted" in done.stderr
