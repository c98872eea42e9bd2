"""A task's write whose broker is not there or is no Kafka: one clear error in time, and nothing is left."""

from functools import partial

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.spark import write as module
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import ProducerCache
from tests.contract.brokers import broker_with
from tests.faults.leaks import nothing_leaks
from tests.support.peers import nobody, peer, responding, silent

ENDLESS = {"max_block_ms": 3_600_000, "delivery_timeout_ms": 3_600_000}
BRIEFLY_MS = 300
"""Where nothing is resolved and no Kafka has to answer."""

broker = broker_with("known", partitions=2, listeners={"SECURE": "SSL"})
ROWS = pa.record_batch({"value": ["a", "b", "c"]})
HTTP_SERVER = responding(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


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
    assert f"Topic t not present in metadata after {BRIEFLY_MS} ms." in said
    assert f"bootstrap.servers={address}" in said
    assert text in said


def test_an_http_server_is_recognized_at_once(producers):
    with peer(HTTP_SERVER) as address:
        said = failure(address)
    assert said == f"{address} responded like an HTTP server: use the port of a Kafka listener in bootstrap.servers"


def test_one_good_server_among_bad_ones_is_enough(producers, broker):
    with peer(HTTP_SERVER) as http, peer(silent) as quiet, nobody() as closed, nothing_leaks():
        servers = [http, closed, quiet, broker.servers("SECURE"), broker.bootstrap_servers]
        message = write(
            ",".join(servers), topic="known", max_block_ms=120_000, socket_connection_setup_timeout_ms=1_000,
            request_timeout_ms=1_000, delivery_timeout_ms=120_000,
        )  # fmt: skip
        producers.close()
    assert sum(sent.count for sent in message.writes) == 3
