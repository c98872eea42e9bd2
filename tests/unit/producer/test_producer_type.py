import pytest

from spark_kafka_sink import KafkaProducer, SyncProducer, open_producer
from spark_kafka_sink.errors import ConfigError

CONFIG = {"bootstrap.servers": "127.0.0.1:9"}


@pytest.mark.parametrize(
    ("named", "kind"), [((), KafkaProducer), (("async",), KafkaProducer), (("sync",), SyncProducer)]
)
def test_each_producer_type_has_its_producer(named, kind):
    with open_producer(CONFIG, *named) as producer:
        assert type(producer) is kind


def test_another_producer_type_is_refused():
    with pytest.raises(ConfigError, match="must be sync or async, but is 'Sync'"):
        open_producer(CONFIG, "Sync")
