"""TLS records bent on their way: an error of this package, or bytes that the server sent, and no others."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import KafkaError
from tests.fuzz.inputs import Bend, bends, bent
from tests.unit.security.conftest import HOST, Certificates, Pair

CERTIFICATES = Certificates()
CLIENT_CONTEXT = CERTIFICATES.client_context()
VERSIONS = {version: CERTIFICATES.server_context() for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}
for version, context in VERSIONS.items():
    context.maximum_version = version
MESSAGE = b"response " * 3000


class BentPair(Pair):
    """The server's bytes, one flight after the other, are bent."""

    def __init__(self, version: ssl.TLSVersion, given: list[Bend | None]) -> None:
        super().__init__(CLIENT_CONTEXT, VERSIONS[version], HOST)
        self._bends = iter(given)
        self.cut = self._bent

    def _bent(self, data: bytes) -> Iterator[bytes]:
        bend = next(self._bends, None) if data else None
        changed = data if bend is None else bent(data, bend)
        if changed:
            yield changed


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_unbent_records_bring_the_message(version: ssl.TLSVersion) -> None:
    pair = BentPair(version, []).connect()
    pair.server.write(MESSAGE)
    pair.exchange()
    assert pair.at_client == MESSAGE


@settings(max_examples=100)
@given(st.sampled_from(list(VERSIONS)), st.lists(st.none() | bends(), min_size=1, max_size=4))
def test_bent_tls_records_are_an_error_or_waited_for(version: ssl.TLSVersion, given: list[Bend | None]) -> None:
    pair = BentPair(version, given)
    with suppress(KafkaError):
        pair.connect()
        if pair.server.established:
            pair.server.write(MESSAGE)
        pair.exchange()
    assert MESSAGE.startswith(pair.at_client), "bytes that the server did not send"
