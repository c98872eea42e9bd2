"""A transactional id that has taken no partition yet has no start time, and kio's reader refuses such a response."""

from __future__ import annotations

from contextlib import closing

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.network.messages import CompletionHandler, KioRequest, Request, Response
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.support.kafka_versions import on_kafka


def test_an_id_without_a_transaction_is_described(kafka_test_broker: TestBroker) -> None:
    check(kafka_test_broker.bootstrap_servers)


@on_kafka("4.4.0", "3.9.1")
def test_kafka_describes_an_id_without_a_transaction(local_kafka: LocalKafka) -> None:
    check(local_kafka.bootstrap_servers)


def check(servers: str) -> None:
    with KafkaProducer({"bootstrap.servers": servers, "transactional.id": "never-begun"}) as producer:
        producer.init_transactions()
    with closing(Rpc(ProducerConfig.parse({"bootstrap.servers": servers}), SystemClock())) as rpc:
        rpc.refresh()
        (node,) = rpc.snapshot.nodes
        answer = rpc.exchange({node: request})[node]
    assert isinstance(answer, Response)
    (told,) = answer.body.transaction_states
    assert (told.transaction_state, told.transaction_start_time, told.topics) == ("Empty", -1, ())


def request(completed: CompletionHandler) -> Request:
    asked = DescribeTransactionsRequest(transactional_ids=("never-begun",))
    return KioRequest("describe_transactions", (0, 0), lambda _module, _version: asked, completed)
