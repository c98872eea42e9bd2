"""A real KDC on loopback, and real Kafkas whose clients log in with its tickets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.testing import LocalKafka
from tests.contract.gssapi.kerberos import Kdc, kerberos_kafka


@pytest.fixture(scope="session")
def kdc() -> Iterator[Kdc]:
    """Its krb5.conf is that of this process."""
    with Kdc() as kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setitem(os.environ, name, value)
        yield kdc


@pytest.fixture(autouse=True)
def no_tickets_of_others(kdc: Kdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test begins with an empty default ticket cache."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")


@pytest.fixture(scope="session", params=["4.4.0", "3.9.1"])
def kafka(request: pytest.FixtureRequest, kdc: Kdc) -> Iterator[LocalKafka]:
    with kerberos_kafka(request.param, kdc) as cluster:
        yield cluster
