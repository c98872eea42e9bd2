import pytest

from spark_kafka_sink import KafkaProducer, SyncProducer, open_producer
from spark_kafka_sink.errors import ConfigError

CONFIG = {"bootstrap.servers": "127.0.0.1:9"}


@pytest.mark.parametrize(
    ("option", "named", "kind"),
    [
        (None, ("async",), KafkaProducer),
        (None, ("sync",), SyncProducer),
        ("sync", (), SyncProducer),
        (" async ", (), KafkaProducer),
        (None, (), KafkaProducer),
        ("async", ("sync",), SyncProducer),
        ("sync", ("async",), KafkaProducer),
    ],
)
def test_the_option_producer_type_is_read_unless_the_argument_is_given(option, named, kind):
    with open_producer({**CONFIG, "producer.type": option}, *named) as producer:
        assert type(producer) is kind


def test_another_producer_type_is_refused():
    with pytest.raises(ConfigError, match="must be sync or async, but is 'Sync'"):
        open_producer(CONFIG, "Sync")
    with pytest.raises(ConfigError, match=r"producer\.type must be sync or async, but is 'both'"):
        open_producer({**CONFIG, "producer.type": "both"})


def test_a_producer_of_the_other_type_is_refused():
    with pytest.raises(ConfigError, match="producer.type is 'async', but this producer is sync; use open_producer"):
        SyncProducer({**CONFIG, "producer.type": "async"})
    with pytest.raises(ConfigError, match="producer.type is 'sync', but this producer is async; use open_producer"):
        KafkaProducer({**CONFIG, "producer.type": "sync"})


OLD_FILE = {
    "metadata.broker.list": "127.0.0.1:9",
    "request.required.acks": "1",
    "compression.codec": "gzip",
    "message.send.max.retries": "5",
    "topic.metadata.refresh.interval.ms": "-1",
    "serializer.class": "kafka.serializer.StringEncoder",
    "key.serializer.class": "kafka.serializer.DefaultEncoder",
    "partitioner.class": "tests.unit.partitioning.own_partitioners:ByLength",
}


@pytest.mark.filterwarnings("ignore::spark_kafka_sink.common.config.ConfigWarning")
def test_the_asynchronous_producer_reads_the_options_of_kafka_0_8():
    with open_producer({**OLD_FILE, "producer.type": "async"}) as producer:
        config = producer.config
    assert (config.bootstrap_servers, config.acks, config.compression_type) == ((("127.0.0.1", 9),), 1, "gzip")
    assert (config.retries, config.metadata_max_age_ms) == (5, 2**63 - 1)


def test_the_synchronous_producer_reads_the_options_of_kafka_0_8():
    with open_producer({**OLD_FILE, "producer.type": "sync"}) as producer:
        config = producer.config
    assert (config.kafka.acks, config.kafka.compression_type) == (1, "gzip")
    assert (config.message_send_max_retries, config.topic_metadata_refresh_interval_ms) == (5, -1)
    assert config.kafka.value_serializer == "spark_kafka_sink.producer.serializers:StringSerializer"
    assert config.kafka.key_serializer == "spark_kafka_sink.producer.serializers:BytesSerializer"
