"""Bent compressed payloads: CorruptRecordError or records within the bound, and no other error."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.common.compression import CODEC_IDS, compress, decompress
from spark_kafka_sink.errors import CorruptRecordError
from tests.properties.bends import BENDS, Bend, bent, each_cut_and_flip

RECORDS = b"records of some length, and records of the same length " * 20
CODECS = [codec for codec in CODEC_IDS if codec != "none"]
PAYLOADS = {codec: compress(codec, None, [RECORDS]) for codec in CODECS}
BOUND = 1 << 20


@settings(max_examples=150)
@given(st.sampled_from(CODECS), st.sampled_from(CODECS), st.lists(BENDS, min_size=1, max_size=3))
def test_a_bent_payload_is_corrupt_or_within_the_bound(codec: str, named: str, bends: list[Bend]) -> None:
    payload = PAYLOADS[codec]
    for bend in bends:
        payload = bent(payload, bend)
    with suppress(CorruptRecordError):
        assert len(decompress(CODEC_IDS[named], payload, BOUND)) <= BOUND


@pytest.mark.parametrize("codec", CODECS)
def test_no_cut_and_no_flipped_bit_of_a_payload_raises_another_error(codec: str) -> None:
    for payload in each_cut_and_flip(PAYLOADS[codec]):
        with suppress(CorruptRecordError):
            assert len(decompress(CODEC_IDS[codec], payload, BOUND)) <= BOUND
