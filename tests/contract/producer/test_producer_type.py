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
