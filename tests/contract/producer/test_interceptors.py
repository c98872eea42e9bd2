import pytest

from spark_kafka_sink import KafkaProducer, SyncProducer
from spark_kafka_sink.errors import (
    BrokerError,
    ConfigError,
    KafkaTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
)
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.producer.record import ProducerRecord, RecordMetadata
from tests.contract.producer import own_plugins
from tests.support.waiting import DEADLINE_S

HERE = "tests.contract.producer.own_plugins"


class Tagging(ProducerInterceptor):
    """Puts its tag behind the value and notes every call."""

    def __init__(self, tag: bytes, calls: list[object]) -> None:
        self.tag = tag
        self.calls = calls

    def configure(self, config):
        self.calls.append((self.tag, "configure", config["client.id"]))

    def on_send(self, record):
        return ProducerRecord(record.topic, record.value + self.tag, record.key)

    def on_acknowledgement(self, metadata, error):
        self.calls.append((self.tag, metadata, error))

    def close(self):
        self.calls.append((self.tag, "close"))


class Failing(ProducerInterceptor):
    def on_send(self, record):
        raise RuntimeError("no")

    def on_acknowledgement(self, metadata, error):
        raise RuntimeError("no")

    def close(self):
        raise RuntimeError("no")


class Forgetful(ProducerInterceptor):
    def on_send(self, record):
        return None


def test_each_gets_what_the_one_before_made_of_the_record_and_failures_of_others_are_logged(broker, caplog):
    calls = []
    chain = [Tagging(b"a", calls), Failing(), Forgetful(), Tagging(b"b", calls)]
    with KafkaProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "c"}, interceptors=chain
    ) as producer:
        metadata = producer.send(ProducerRecord("t", b"v")).result(DEADLINE_S)
        with pytest.raises(RecordTooLargeError):
            producer.send(ProducerRecord("t", bytes(2 << 20)))
    assert broker.topic("t").values() == [b"vab"]
    tags = (b"a", b"b")
    assert calls[:4] == [*((tag, "configure", "c") for tag in tags), *((tag, metadata, None) for tag in tags)]
    assert [(tag, type(error)) for tag, _, error in calls[4:6]] == [(tag, RecordTooLargeError) for tag in tags]
    assert calls[6:] == [(tag, "close") for tag in tags]
    for method in ("on_send for topic t", "on_acknowledgement", "close"):
        assert f"Failing failed in {method}" in caplog.text
    assert "on_send must return a ProducerRecord, not None" in caplog.text


def test_interceptors_that_an_option_names_come_before_those_that_are_given(broker):
    class Given(ProducerInterceptor):
        def on_send(self, record):
            return ProducerRecord(record.topic, record.value + b"+given")

    own_plugins.CALLS.clear()
    options = {"bootstrap.servers": broker.bootstrap_servers, "interceptor.classes": f"{HERE}:Tagging"}
    with KafkaProducer(options, interceptors=[Given()]) as producer:
        producer.send(ProducerRecord("t", b"v"))
    assert broker.topic("t").values() == [b"v+class+given"]
    assert own_plugins.CALLS == [("interceptor", 5), ("interceptor closed",)]


def test_a_class_without_the_methods_of_an_interceptor_is_a_config_error(broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "interceptor.classes": [f"{HERE}:NoSerializer"]}
    with pytest.raises(ConfigError, match=r"interceptor.classes .*NoSerializer has no method configure, on_send"):
        KafkaProducer(options)


def test_the_sync_producer_has_no_interceptors():
    with pytest.raises(ConfigError, match="interceptor.classes needs the asynchronous producer"):
        SyncProducer({"bootstrap.servers": "h:1", "interceptor.classes": f"{HERE}:Tagging"})


class Told(ProducerInterceptor):
    def __init__(self):
        self.told = []

    def on_acknowledgement(self, metadata, error):
        self.told.append((metadata, type(error)))


def failed_on(topic, partition):
    return RecordMetadata(topic, partition, -1, -1, -1, -1)


def test_the_partition_of_a_record_that_a_broker_refuses_is_named(broker):
    broker.create_topic("small", partitions=3, configs={"max.message.bytes": "100"})
    told = Told()
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}, interceptors=[told]) as producer:
        future = producer.send(ProducerRecord("small", b"x" * 1_000, b"a key"))
        with pytest.raises(BrokerError):
            future.result(DEADLINE_S)
        delivered = producer.send(ProducerRecord("small", b"x", b"a key"))
        partition = delivered.result(DEADLINE_S).partition
    assert told.told[0] == (failed_on("small", partition), BrokerError)
    assert future.partition() == delivered.partition() == partition


def test_a_record_that_fails_before_it_has_a_batch_names_the_partition_it_asked_for(broker):
    told = Told()
    options = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000}
    producer = KafkaProducer({**options, "delivery.timeout.ms": 120_000}, interceptors=[told])
    futures = [producer.send(ProducerRecord("t", b"v")), producer.send(ProducerRecord("t", b"v", partition=0))]
    producer.close(0)
    assert told.told == [(failed_on("t", -1), ProducerClosedError), (failed_on("t", 0), ProducerClosedError)]
    assert [future.partition() for future in futures] == [None, None]


def test_interceptors_see_that_send_itself_fails(broker):
    told = Told()
    options = {"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 50}
    producer = KafkaProducer(options, interceptors=[told])
    with pytest.raises(KafkaTimeoutError, match="Partition 9 of topic t with partition count 1 is not present"):
        producer.send(ProducerRecord("t", b"v", partition=9))
    producer.close()
    with pytest.raises(ProducerClosedError):
        producer.send(ProducerRecord("t", b"v"))
    assert told.told == [(failed_on("t", 9), KafkaTimeoutError), (failed_on("t", -1), ProducerClosedError)]
