"""The blocks of options in docs/security.md are what the producer and the sink accept."""

import re
import warnings
from pathlib import Path

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.providers import parse_properties
from spark_kafka_sink.spark.options import SinkOptions

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
BLOCKS = [parse_properties(block) for block in re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)]
CLUSTERS = [block for block in BLOCKS if "bootstrap.servers" in block]
each_cluster = pytest.mark.parametrize("block", CLUSTERS, ids=lambda block: block["bootstrap.servers"])


def test_the_page_has_the_blocks():
    hosts = " ".join(block["bootstrap.servers"] for block in CLUSTERS)
    vendors = ["confluent.cloud", "amazonaws.com", "servicebus.windows.net", "cloud.goog", "aivencloud.com", "svc"]
    assert [vendor for vendor in vendors if vendor not in hosts] == []


def for_spark(name):
    return name.lower() if name == "saslTokenProvider" else f"kafka.{name}"


@each_cluster
def test_a_block_is_accepted_without_a_warning(block):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = ProducerConfig.parse(block)
        written = SinkOptions.parse({for_spark(name): value for name, value in block.items()})
    assert config == written.producer
    assert config.security_protocol in ("SSL", "SASL_SSL")


def test_the_block_of_config_providers_is_accepted():
    (block,) = [block for block in BLOCKS if "config.providers" in block]
    config = ProducerConfig.parse({"bootstrap.servers": "broker:9093", "security.protocol": "SSL", **block})
    assert str(config.config_providers) == "vault"
