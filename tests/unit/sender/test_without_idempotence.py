"""Brokers without InitProducerId: idempotence that nobody asked for is given up before the first row."""

from __future__ import annotations

import pytest

from tests.unit import scripted_engine
from tests.unit.scripted_engine import Engine, Step


@pytest.fixture
def old(monkeypatch):
    ranges = {key: versions for key, versions in scripted_engine.RANGES.items() if key != 22}
    monkeypatch.setattr(scripted_engine, "RANGES", ranges)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 1),
        ({"max_in_flight_requests_per_connection": 3}, 3),
        ({"enable_idempotence": False}, 4),
    ],
)
def test_one_request_is_in_flight_unless_more_were_asked_for(old, options, most):
    engine = Engine(partitions=4, **options)
    engine.connect()
    engine.steps.extend(Step(hold=True) for _ in range(4))
    for partition in range(4):
        engine.append([b"v"], partition)
        engine.spin()
    assert len(engine.requests) == most


def test_rows_keep_their_order_when_a_request_fails(old):
    engine = Engine()
    engine.connect()
    engine.steps.extend([Step(lose_response=True), Step(), Step()])
    for value in (b"1", b"2", b"3"):
        engine.append([value])
        engine.spin()
    engine.settle()
    log = engine.logs[0].values
    assert log in ([b"1", b"2", b"3"], [b"1", b"1", b"2", b"3"])
