"""Requests on the caller's own thread, to brokers that come and go."""

import logging
import re
from contextlib import closing

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v0.request import ListTransactionsRequest

from spark_kafka_sink.common import repeated_warnings
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.repeated_warnings import STALL_MS
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.testing import TestBroker


@pytest.fixture
def brokers():
    with TestBroker(nodes=2) as cluster:
        yield cluster


@pytest.fixture
def rpc(brokers):
    with closing(Rpc(ProducerConfig.parse({"bootstrap.servers": brokers.bootstrap_servers}), SystemClock())) as each:
        each.refresh()
        yield each


def list_call():
    return Call(
        "list_transactions",
        (0, 0),
        1,
        lambda _module, _version: ListTransactionsRequest(),
        lambda body: [CodeAt("ListTransactions", body.error_code)],
    )


@pytest.mark.parametrize("stall_ms", [300.0, STALL_MS])
def test_a_call_that_waits_for_long_is_told_with_the_reason(rpc, stall_ms, monkeypatch, caplog):
    monkeypatch.setattr(repeated_warnings, "STALL_MS", stall_ms)
    monkeypatch.setattr(repeated_warnings, "EVERY_MS", stall_ms)
    call = list_call()
    call.codes = lambda _body: [CodeAt("ListTransactions", ErrorCode.coordinator_load_in_progress)]

    with pytest.raises(KafkaTimeoutError):
        rpc.call(call, rpc.now() + 800)

    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == (2 if stall_ms == 300.0 else 0)
    named = r"ListTransactions for 127\.0\.0\.1:\d+ \(id: 1\) has waited for"
    assert all(re.match(f"{named} 0 s: ", line) for line in told[:1])
    assert all(re.match(f"{named} 1 s: ", line) for line in told[1:])
    assert all("COORDINATOR_LOAD_IN_PROGRESS" in line for line in told)
