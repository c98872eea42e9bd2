"""docs/test-broker.md says of each API and each setting whether TestBroker emulates, ignores or refuses it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spark_kafka_sink.errors import BrokerError, ConfigError
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.emulation import APIS, BROKER_CONFIGS, TOPIC_CONFIGS, Entry, Status
from spark_kafka_sink.testing.broker.state.config import BROKER_DEFAULTS, TOPIC_DEFAULTS
from tests.contract.plain_client import API_KEYS, PlainClient

API_NAMES = {key: name for name, key in API_KEYS.items()}


def names(entries: Iterable[Entry], *statuses: Status) -> list[str]:
    return sorted(name for entry in entries if not statuses or entry.status in statuses for name in entry.names)


def test_every_api_of_kafka_is_listed() -> None:
    assert names(APIS) == sorted(API_NAMES.values())


def test_the_announced_apis_are_those_that_are_not_refused(broker: TestBroker, client: PlainClient) -> None:
    answer = client.ask("ApiVersions", 3, client_software_name="test", client_software_version="1")
    announced = sorted(API_NAMES[each.api_key] for each in answer.api_keys)
    assert announced == names(APIS, Status.EMULATED, Status.NO_EFFECT)


def test_the_topic_settings_it_takes_are_those_that_are_not_refused() -> None:
    assert names(TOPIC_CONFIGS, Status.EMULATED, Status.NO_EFFECT) == sorted(TOPIC_DEFAULTS)


@pytest.mark.parametrize("name", names(TOPIC_CONFIGS, Status.REFUSED))
def test_a_refused_topic_setting_is_an_error(broker: TestBroker, name: str) -> None:
    with pytest.raises(BrokerError, match=f"Unknown topic config name: {name}"):
        broker.create_topic("u", configs={name: "1"})


def test_every_broker_setting_it_takes_is_listed() -> None:
    assert names(BROKER_CONFIGS) == sorted(BROKER_DEFAULTS)
    with pytest.raises(ConfigError, match=r"log.retention.ms is not a setting of TestBroker"):
        TestBroker(config={"log.retention.ms": 1})
