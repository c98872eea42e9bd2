"""A task's write whose broker is not there, is no Kafka, or goes away: one clear error in time, and nothing is left."""

import contextlib
import socket
import time
from functools import partial

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.spark import write as module
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import ProducerCache
from spark_kafka_sink.testing import LocalKafka
from tests.faults.leaks import nothing_leaks
from tests.support.peers import peer, responding, silent

ENDLESS = {"max_block_ms": 3_600_000, "delivery_timeout_ms": 3_600_000}
WAIT_MS = 1_500
BRIEFLY_MS = 300
"""Where nothing is resolved and no Kafka has to answer."""

NOT_THERE = "Topic t not present in metadata after {} ms."
ROWS = pa.record_batch({"value": ["a", "b", "c"]})


@pytest.fixture(scope="module")
def kafka():
    """Creates no topics by itself, and has a listener for TLS."""
    with LocalKafka(listeners={"SECURE": "SSL"}, properties={"auto.create.topics.enable": "false"}) as kafka:
        kafka.create_topic("known", 2)
        yield kafka


HTTP_SERVER = responding(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextlib.contextmanager
def nobody():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
    yield address


@pytest.fixture
def producers(monkeypatch):
    """The worker's own producers, as if it had just started."""
    cache = ProducerCache(ProducerCore.open)
    monkeypatch.setattr(module, "PRODUCERS", cache)
    yield cache
    cache.close()


def write(servers, batches=(ROWS,), topic="t", **options):
    kafka_options = {f"kafka.{name.replace('_', '.')}": str(value) for name, value in options.items()}
    parsed = SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": topic, **kafka_options})
    return module.write_rows(iter(batches), RowLayout(value=0), parsed)


def failure(*arguments, **options):
    """The text of the error, which leaves nothing. What no option ends in time, the test's own limit ends."""
    with nothing_leaks(), pytest.raises(KafkaError) as raised:
        write(*arguments, **{**ENDLESS, **options})
    return str(raised.value)


@pytest.mark.parametrize(
    ("server", "text"),
    [(nobody, "Connection refused"), (partial(peer, silent), "No broker has responded")],
)
def test_bootstrap_servers_that_do_not_answer_are_named_after_max_block_ms(producers, server, text):
    with server() as address:
        said = failure(address, max_block_ms=BRIEFLY_MS)
    assert NOT_THERE.format(BRIEFLY_MS) in said
    assert f"bootstrap.servers={address}" in said
    assert text in said


def test_an_http_server_is_recognized_at_once(producers):
    with peer(HTTP_SERVER) as address:
        said = failure(address)
    assert said == f"{address} responded like an HTTP server: use the port of a Kafka listener in bootstrap.servers"


@pytest.mark.jvm
def test_one_good_server_among_bad_ones_is_enough(producers, kafka):
    with peer(HTTP_SERVER) as http, peer(silent) as quiet, nobody() as closed, nothing_leaks():
        servers = [http, closed, quiet, kafka.servers("SECURE"), kafka.bootstrap_servers]
        message = write(
            ",".join(servers), topic="known", max_block_ms=120_000, socket_connection_setup_timeout_ms=1_000,
            request_timeout_ms=1_000, delivery_timeout_ms=120_000,
        )  # fmt: skip
        producers.close()
    assert sum(sent.count for sent in message.writes) == 3


@pytest.mark.jvm
def test_a_topic_that_the_broker_does_not_create_is_named_after_max_block_ms(producers, kafka):
    said = failure(kafka.bootstrap_servers, max_block_ms=WAIT_MS)
    assert NOT_THERE.format(WAIT_MS) in said
    assert "did not create it" in said


def rows_until(trouble, *after):
    """A batch that is delivered, then ``trouble``, then the batches ``after``."""
    yield ROWS
    time.sleep(0.5)
    trouble(1)
    yield from after


@pytest.fixture
def interrupted(kafka):
    """A broker that is up again after the test, whatever that does to it."""
    yield kafka
    if kafka.alive(1):
        kafka.resume(1)
    else:
        kafka.start(1)


@pytest.mark.jvm
@pytest.mark.parametrize("trouble", ["pause", "kill"])
def test_a_broker_that_stays_away_in_mid_write_fails_it_after_delivery_timeout_ms(producers, interrupted, trouble):
    rows = rows_until(getattr(interrupted, trouble), ROWS)
    said = failure(
        interrupted.bootstrap_servers, rows, topic="known", delivery_timeout_ms=4_000, request_timeout_ms=1_000
    )
    assert "Expiring 3 record(s) for known-" in said
    assert "ms has passed since batch creation" in said
