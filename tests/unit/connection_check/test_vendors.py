"""Which vendor a check takes the brokers for, and what it advises: a guess that must not be wrong of real Kafkas."""

import socket
from pathlib import Path

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.exactly_once.ledger_topic import LEDGER_SETTINGS
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.tools.cli.main import main
from spark_kafka_sink.tools.connection_check.check import CheckRequest, check
from spark_kafka_sink.tools.connection_check.findings import Outcome, differences
from spark_kafka_sink.tools.connection_check.vendors import VENDORS, advice, filled, guess

PAGE = Path(__file__).parents[3] / "docs/security.md"
BY_NAME = {vendor.name: vendor for vendor in VENDORS}
EVENT_HUBS = BY_NAME["Azure Event Hubs"]
LIKE_EVENT_HUBS = {"Produce": (0, 7), "Metadata": (0, 5), "Fetch": (0, 6)}
LIKE_REDPANDA = {"Produce": (0, 7), "Metadata": (0, 7), "Fetch": (0, 11)}

HOSTS = {
    "orders.servicebus.windows.net": "Azure Event Hubs",
    "Orders.ServiceBus.Windows.Net.": "Azure Event Hubs",
    "orders.servicebus.chinacloudapi.cn": "Azure Event Hubs",
    "orders.servicebus.usgovcloudapi.net": "Azure Event Hubs",
    "pkc-12345.eu-central-1.aws.confluent.cloud": "Confluent Cloud",
    "boot-abc123.c1.kafka-serverless.eu-central-1.amazonaws.com": "MSK Serverless",
    "b-1.orders.abc123.c2.kafka.eu-central-1.amazonaws.com": "Amazon MSK (provisioned)",
    "b-1.orders.abc123.c2.kafka.cn-north-1.amazonaws.com.cn": "Amazon MSK (provisioned)",
    "seed-0.abc.any.eu-central-1.mpx.prd.cloud.redpanda.com": "Redpanda",
    "bootstrap.orders.europe-west3.managedkafka.my-project.cloud.goog": "Google Managed Service for Apache Kafka",
    "orders-my-project.aivencloud.com": "Aiven",
}
LOOKALIKES = [
    "servicebus.windows.net.evil.com",
    "orders.servicebus.windows.net.evil.com",
    "orders-servicebus.windows.net",
    "notservicebus.windows.net",
    "evilservicebus.windows.net",
    "servicebus.windows.net",
    ".servicebus.windows.net",
    "x..servicebus.windows.net",
    "orders.servicebus.windows.net.internal",
    "myconfluent.cloud",
    "confluent.cloud.example",
    "kafka-serverless.eu-central-1.amazonaws.com",
    "b-1.kafka.amazonaws.com",
    "b-1.kafka.eu.central.amazonaws.com",
    "kafka.compute.eu-central-1.amazonaws.com",
    "ec2-1-2-3-4.eu-central-1.compute.amazonaws.com",
    "notaivencloud.com",
    "10.0.0.1",
    "::1",
    "localhost",
    "",
]

# The highest Produce, Fetch and Metadata of each release; franz-go's kversion has the same.
RELEASES = {
    "0.11": (3, 5, 4), "1.0": (5, 6, 5), "1.1": (5, 7, 5), "2.0": (6, 8, 6), "2.1": (7, 10, 7), "2.2": (7, 10, 7),
    "2.3": (7, 11, 8), "2.4": (8, 11, 9), "2.5": (8, 11, 9), "2.6": (8, 11, 9), "2.7": (8, 12, 9), "2.8": (9, 12, 11),
    "3.0": (9, 12, 11), "3.1": (9, 13, 12), "3.3": (9, 13, 12), "3.5": (9, 15, 12), "3.7": (10, 16, 12),
    "3.9": (11, 17, 12), "4.0": (12, 17, 13), "4.1": (13, 18, 13),
}  # fmt: skip


def guessed(hosts=(), cluster_id=None, **highest):
    found = guess(hosts, cluster_id, highest)
    return None if found is None else found.vendor.name


def parsed(**options):
    return ProducerConfig.parse({"bootstrap.servers": "b:9092", **{k.replace("_", "."): v for k, v in options.items()}})


def advised(findings):
    return [each.text for each in findings if each.outcome is Outcome.ADVICE]


def checked(options, **request):
    config = ProducerConfig.parse(options)
    return list(check(CheckRequest(config, **{"ledger_topic": "ledger", **request}), SystemClock()))


@pytest.mark.parametrize("host", HOSTS)
def test_a_vendor_is_recognised_by_its_host_names(host):
    assert guessed([host]) == HOSTS[host]
    assert guessed([host, host]) == HOSTS[host]


@pytest.mark.parametrize("host", LOOKALIKES)
def test_a_host_name_that_only_looks_alike_is_none_of_a_vendor(host):
    assert guessed([host]) is None


@pytest.mark.parametrize("other", ["kafka1.example", "pkc-1.confluent.cloud", "servicebus.windows.net.evil.com"])
def test_host_names_of_several_suggest_none(other):
    assert guessed(["orders.servicebus.windows.net", other]) is None
    assert guessed([other, "orders.servicebus.windows.net"]) is None


def test_without_a_host_name_nothing_is_guessed():
    assert guessed([]) is None


def test_redpanda_is_recognised_by_its_cluster_ids():
    assert guessed(["kafka1"], "redpanda.2d339cd9-b540-484d-80da-16cd0650e49b") == "Redpanda"
    assert guessed(["kafka1"], "redpanda.initializing") == "Redpanda"
    for other in (None, "", "redpanda", "my-redpanda.1", "M4wXnm3ASCGhM1T0"):
        assert guessed(["kafka1"], other) is None


@pytest.mark.parametrize("release", RELEASES)
def test_no_release_of_kafka_is_taken_for_a_vendors(release):
    produce, fetch, metadata = RELEASES[release]
    assert guessed(["kafka1"], "M4wXnm3ASCGhM1T0", produce=produce, fetch=fetch, metadata=metadata) is None


def test_versions_that_no_release_has_together_suggest_a_vendor():
    assert guessed(["kafka1"], produce=7, fetch=6, metadata=5) == "Azure Event Hubs"
    assert guessed(["kafka1"], produce=7, fetch=11, metadata=7) == "Redpanda"
    assert guessed(["kafka1"], produce=7, metadata=7) is None, "Fetch is not told"


def test_the_versions_of_a_guess_are_those_of_no_release():
    for vendor in VENDORS:
        assert {api for api, _version in vendor.versions} <= set(API_KEYS)
        for release in RELEASES.values():
            highest = dict(zip(("produce", "fetch", "metadata"), release, strict=True))
            assert not vendor.versions or any(highest[api] != version for api, version in vendor.versions)


def test_a_host_name_says_more_than_the_rest():
    assert guessed(["pkc-1.confluent.cloud"], "redpanda.1", produce=7, metadata=5) == "Confluent Cloud"


def test_what_brokers_send_is_shown_without_commands_for_a_terminal():
    clue = guess(["kafka1"], "redpanda.\x1b[2J\n" + "x" * 500, {}).clue
    assert clue.isprintable()
    assert "redpanda.\\x1b[2J\\n" in clue
    assert len(clue) < 200
    assert guess(["o\x1b.servicebus.windows.net"], None, {}).clue.isprintable()


def test_the_defaults_violate_what_event_hubs_permits():
    assert list(advice(EVENT_HUBS, parsed(), transactional=False)) == [
        "max.request.size is 1048576 and should be below 1,046,528, for example 1000000: the service closes "
        "connections that send larger requests.",
        "connections.max.idle.ms is 540000 and should be below 240,000, for example 180000: Azure closes connections "
        "that are idle for longer.",
        "metadata.max.age.ms is 300000 and should be below 240,000, for example 180000: this is the range that the "
        "service permits.",
    ]


def test_only_what_a_configuration_violates_is_advised():
    fits = {"max_request_size": 1_046_527, "connections_max_idle_ms": 239_999, "metadata_max_age_ms": 239_999}
    assert list(advice(EVENT_HUBS, parsed(**fits), transactional=False)) == []
    assert list(advice(EVENT_HUBS, parsed(**fits, compression_type="gzip"), transactional=False)) == []
    (text,) = advice(EVENT_HUBS, parsed(**fits | {"max_request_size": 1_046_528}), transactional=False)
    assert text.startswith("max.request.size is 1046528 and should be below")
    (text,) = advice(EVENT_HUBS, parsed(**fits, compression_type="zstd"), transactional=False)
    assert text.startswith("compression.type is zstd and should be one of none, gzip, ")
    (text,) = advice(EVENT_HUBS, parsed(**fits | {"connections_max_idle_ms": -1}), transactional=False)
    assert text.startswith("connections.max.idle.ms is -1 "), "connections are never closed"


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_each_advised_value_fits(vendor):
    for limit in vendor.limits:
        config = parsed(**{limit.option: limit.advised})
        assert str(limit.value(config)) == limit.advised
        assert not [text for text in advice(vendor, config, transactional=False) if text.startswith(f"{limit.option} ")]


def test_the_ledger_is_spoken_of_only_for_exactly_once():
    for vendor in VENDORS:
        assert "commitLogTopic" not in "".join(advice(vendor, parsed(), transactional=False))
    (text,) = advice(BY_NAME["Confluent Cloud"], parsed(), transactional=True)
    assert text == (
        "Its topics do not take unclean.leader.election.enable, min.cleanable.dirty.ratio: the commitLogTopic is "
        "created without."
    )


def test_every_vendor_lets_the_ledger_be_compacted():
    for vendor in VENDORS:
        assert "cleanup.policy" not in vendor.refused_settings()
        assert vendor.topic_settings is None or set(vendor.refused_settings()) < set(LEDGER_SETTINGS)


def test_check_advises_brokers_with_the_versions_of_event_hubs():
    with TestBroker(api_versions=LIKE_EVENT_HUBS) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers}
        findings = checked(options)
        (text,) = advised(findings)
        with_prefix = "".join(advised(checked(options, transactional_id_prefix="p")))
        fitting = options | {"max.request.size": 1_000_000, "connections.max.idle.ms": 180_000}
        assert advised(checked(fitting | {"metadata.max.age.ms": 180_000})) == []
    head, *lines = text.splitlines()
    assert head.startswith(
        "this looks like Azure Event Hubs (a guess by its API versions, Produce 7 and Metadata 5, which no release of "
        "Apache Kafka has together); see https://learn.microsoft.com/"
    )
    assert [line.split()[0] for line in lines] == ["max.request.size", "connections.max.idle.ms", "metadata.max.age.ms"]
    assert "Standard tier has no transactions" not in text
    assert "Standard tier has no transactions" in with_prefix
    assert [each for each in findings if each.outcome is Outcome.FAILED] == []


def test_check_advises_brokers_with_the_versions_of_redpanda_only_what_exactly_once_needs():
    with TestBroker(like="2.8", api_versions=LIKE_REDPANDA) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers}
        assert advised(checked(options)) == []
        (text,) = advised(checked(options, transactional_id_prefix="p"))
    assert text.startswith("this looks like Redpanda (a guess by ")


@pytest.mark.parametrize("like", ["2.1", "2.4", "2.8", "3.5", "3.9", "4.1"])
def test_check_gives_no_advice_on_a_release_of_kafka(like):
    with TestBroker(like=like) as broker:
        assert advised(checked({"bootstrap.servers": broker.bootstrap_servers}, transactional_id_prefix="p")) == []


@pytest.mark.parametrize(
    ("host", "vendor"), [("orders.servicebus.windows.net", True), ("orders.servicebus.windows.net.evil.com", False)]
)
def test_check_goes_by_the_host_names_of_bootstrap_servers(monkeypatch, host, vendor):
    real = socket.getaddrinfo

    def found(name, *args, **options):
        return real("127.0.0.1" if name == host else name, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with TestBroker() as broker:
        port = broker.bootstrap_servers.split(":")[1]
        texts = advised(checked({"bootstrap.servers": f"{host}:{port}"}))
    assert bool(texts) is vendor
    if vendor:
        assert texts[0].startswith(f"this looks like Azure Event Hubs (a guess by the host name {host}); see ")


def test_advice_is_shown_and_changes_neither_count_nor_exit_code(capsys):
    with TestBroker(api_versions=LIKE_EVENT_HUBS) as broker:
        code = main(["check", "--bootstrap-server", broker.bootstrap_servers])
        shown = capsys.readouterr().out
        failed = main(["check", "--bootstrap-server", broker.bootstrap_servers, "--topic", "missing"])
        with_failure = capsys.readouterr().out
    assert code == 0
    assert failed == 1
    assert "  advice   vendor" in shown
    assert "max.request.size is 1048576" in shown
    assert shown.splitlines()[-1] == "no step failed"
    steps = with_failure.count("  ok  ") + 1
    assert with_failure.splitlines()[-1] == f"1 of {steps} steps failed, first metadata of topic missing"


def test_equal_advice_is_no_difference_between_driver_and_worker():
    with TestBroker(api_versions=LIKE_EVENT_HUBS) as broker:
        here, there = (checked({"bootstrap.servers": broker.bootstrap_servers}) for _ in range(2))
    assert advised(here)
    assert differences(here, there) == ()


def test_no_two_vendors_have_the_same_hosts():
    endings = [ending for vendor in VENDORS for ending in vendor.hosts]
    assert len(endings) == len(set(endings))
    for host, name in HOSTS.items():
        assert [vendor.name for vendor in VENDORS if guess([host], None, {}).vendor is vendor] == [name]


def test_the_page_is_fresh_and_has_each_vendors_section():
    page = PAGE.read_text()
    assert filled(page) == page, "run: python -m spark_kafka_sink.tools.connection_check.vendors docs/security.md"
    headings = [line[4:].lower().replace(" ", "-") for line in page.splitlines() if line.startswith("### ")]
    assert {vendor.section for vendor in VENDORS if vendor.section} <= set(headings)
    assert all(link.startswith("https://") for vendor in VENDORS for link in vendor.links)
