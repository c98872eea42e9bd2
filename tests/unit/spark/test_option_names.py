"""Every message names the producer's options for its reader: ``linger.ms`` by ``KafkaProducer``, ``kafka.linger.ms`` by
the sink, which puts the producer's messages through ``with_prefix``. Settings of topics and a broker's own words stay.
"""

import re
from collections.abc import Iterable, Iterator

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config.producer_config import OPTIONS_BY_NAME
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.error_table import broker_error
from spark_kafka_sink.spark.options import SinkOptions, with_prefix
from spark_kafka_sink.spark.sink_write import with_hints
from tests.repository.files import PACKAGE
from tests.repository.messages import LEAST_WORDS, texts_in

NAMES = "|".join(re.escape(name) for name in OPTIONS_BY_NAME if "." in name)
NAMED = re.compile(rf"(?<![\w.])(?<!topic's )(kafka\.)?(?:{NAMES})(?!\.?\w)")


PRODUCERS = ("common", "network", "producer", "records")


def texts_of(packages: Iterable[str]) -> Iterator[str]:
    return texts_in(*(PACKAGE / package for package in packages))


def messages(*packages: str) -> list[tuple[str, list[str]]]:
    """The texts that name options, with the prefix of each name. The value ``{}`` in front of a name is a prefix."""
    found = {text.replace("{}", "kafka.") for text in texts_of(packages) if len(text.split()) >= LEAST_WORDS}
    return [(text, prefixes) for text in sorted(found) if (prefixes := NAMED.findall(text))]


def test_the_sinks_own_messages_name_the_producers_options_with_their_prefix():
    found = messages("spark", "exactly_once", "schemas")
    assert len(found) > 20
    for text, prefixes in found:
        assert all(prefixes), text
        assert with_prefix(text) == text


def test_the_producers_messages_get_the_prefix_at_the_border_of_the_sink():
    found = messages(*PRODUCERS)
    assert len(found) > 50
    for text, prefixes in found:
        shown = with_prefix(text)
        assert all(NAMED.findall(shown)), text
        assert len(shown) - len(text) == len("kafka.") * prefixes.count(""), "nothing else has changed"


def test_the_producers_messages_have_no_prefix_of_their_own():
    for text in texts_of(PRODUCERS):
        assert "kafka." not in NAMED.findall(text), text


@pytest.mark.parametrize(
    "words",
    ["Invalid value x for configuration compression.type: one of gzip", "The topic's compression.type is (not) zstd."],
)
def test_what_a_broker_says_is_shown_as_it_said_it(words):
    options = SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "topic": "t"})
    refused = broker_error(ErrorCode.invalid_config, "CreateTopics of t", words)
    for wrap in (lambda: refused, lambda: _wrapped(refused)):
        with pytest.raises(KafkaError) as caught, with_hints(options):
            raise wrap()
        assert words in f"{caught.value}."
        assert "kafka.compression.type" not in str(caught.value)


def _wrapped(refused: KafkaError) -> KafkaError:
    error = KafkaError(f"{refused}: see linger.ms.")
    error.__cause__ = refused
    return error


def test_settings_of_topics_have_no_prefix():
    text = "raise the topic's max.message.bytes or batch.size; the topic's compression.type makes batches larger"
    assert with_prefix(text) == text.replace("batch.size", "kafka.batch.size")
    for text in ("schema.registry.ssl.keystore.location", "linger.msx, batch.size.x", "acks=all after 3 retries"):
        assert with_prefix(text) == text
