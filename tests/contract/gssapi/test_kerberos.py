"""GSSAPI against a real KDC and real brokers. Kafka's own consumer is the referee: PyPI's librdkafka has no GSSAPI."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.config.providers import parse_properties
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network import client as network_client
from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.testing.kafka_security import properties_text
from spark_kafka_sink.testing.listener import with_prefix
from tests.contract.gssapi.kerberos import (
    KRB5,
    REALM,
    SESSION_MS,
    SHORT_S,
    Kdc,
    client_options,
    java_command,
    keytab_login,
)
from tests.contract.scenario import name
from tests.contract.security.librdkafka import consume
from tests.support.waiting import DEADLINE_S, holds_for

pytestmark = [pytest.mark.gssapi, pytest.mark.jvm]
PAGE = Path(__file__).parents[3] / "docs" / "security.md"
TICKETS = f"{KRB5} useTicketCache=true;"
REAUTHENTICATIONS = "successful-reauthentication-total"


@pytest.fixture
def topic(kafka: LocalKafka) -> str:
    topic = name("kerberos")
    kafka.create_topic(topic)
    return topic


def write(options: dict[str, str], topic: str, *values: bytes) -> None:
    with KafkaProducer(options) as producer:
        for value in values:
            producer.send(ProducerRecord(topic, value, partition=0)).result(DEADLINE_S)


def written(kafka: LocalKafka, topic: str, count: int) -> list[bytes]:
    return consume({"bootstrap.servers": kafka.bootstrap_servers}, topic, count)


def error_of(options: dict[str, str], topic: str) -> str:
    with KafkaProducer({**options, "max.block.ms": "30000"}) as producer, pytest.raises(KafkaError) as raised:
        producer.send(ProducerRecord(topic, b"1", partition=0)).result(DEADLINE_S)
    return str(raised.value)


def metric(producer: KafkaProducer, of: str) -> Any:
    return producer.metrics()["producer-metrics"][of]


# -- logins -----------------------------------------------------------------------------------------------------------


def test_a_keytab_logs_in_once_for_all_clients_and_javas_consumer_reads_with_the_same_options(
    kafka: LocalKafka, kdc: Kdc, topic: str, tmp_path: Path
) -> None:
    options = client_options(kafka, keytab_login(kdc, "orders"))
    before = kdc.tickets_given_to("orders")
    with KafkaProducer(options):
        write(options, topic, b"1", b"2")
        write(options, topic, b"3")
    assert kdc.tickets_given_to("orders") == before + 1
    file = tmp_path / "client.properties"
    file.write_text(properties_text(options))
    command = java_command(
        kafka, kdc, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", kafka.servers("KRB"),
        "--consumer.config", str(file), "--topic", topic, "--from-beginning", "--max-messages", "3",
        "--timeout-ms", "30000",
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    records = [
        line for line in done.stdout.splitlines() if not line.startswith("Option --consumer.config is deprecated")
    ]
    assert records == ["1", "2", "3"], done.stderr


def test_the_tickets_of_kinit_log_in(kafka: LocalKafka, kdc: Kdc, topic: str, tmp_path: Path) -> None:
    kdc.kinit(os.environ["KRB5CCNAME"])
    write(client_options(kafka, TICKETS), topic, b"1")
    cache = tmp_path / "another"
    kdc.kinit(cache)
    write(client_options(kafka, f'{TICKETS[:-1]} ticketCache="{cache}" principal="person";'), topic, b"2")
    assert written(kafka, topic, 2) == [b"1", b"2"]


def test_the_service_is_that_of_the_host_as_given_before_that_of_its_canonical_name(
    kafka: LocalKafka, kdc: Kdc, topic: str
) -> None:
    options = client_options(kafka, keytab_login(kdc, "orders"), "STREAM")
    write({**options, "sasl.kerberos.service.name": "stream"}, topic, b"1")
    assert written(kafka, topic, 1) == [b"1"]


def test_the_block_of_the_documentation_logs_in(kafka: LocalKafka, kdc: Kdc, topic: str) -> None:
    blocks = map(parse_properties, re.findall(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL))
    (block,) = [block for block in blocks if block.get("sasl.mechanism") == "GSSAPI"]
    jaas = block["sasl.jaas.config"]
    own = {"/etc/kafka/orders.keytab": kdc.keytab("orders"), "EXAMPLE.COM": REALM}
    for name_in_page, here in own.items():
        assert name_in_page in jaas
        jaas = jaas.replace(name_in_page, here)
    tls = {name: value for name, value in kafka.client_options("KRB_TLS").items() if name.startswith("ssl.")}
    servers = kafka.servers("KRB_TLS")
    write({**block, **tls, "bootstrap.servers": servers, "sasl.jaas.config": jaas}, topic, b"1")
    assert written(kafka, topic, 1) == [b"1"]


@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once"])
def test_spark_writes_from_its_workers(kafka: LocalKafka, kdc: Kdc, topic: str, spark: SparkSession, mode: str) -> None:
    options = with_prefix(client_options(kafka, keytab_login(kdc, "orders")))
    if mode == "exactly-once":
        options |= {"deliveryGuarantee": mode, "ledgerTopic": name("ledger")}
        options |= {"txnAppId": topic, "txnVersion": "0"}
    rows = spark.range(100, numPartitions=4).selectExpr("cast(id as string) as value")
    rows.write.format("pykafka").options(**options, topic=topic).mode("append").save()
    assert {int(value) for value in written(kafka, topic, 100)} == set(range(100))


# -- time -------------------------------------------------------------------------------------------------------------


def write_for(producer: KafkaProducer, topic: str, seconds: float) -> list[bytes]:
    values: list[bytes] = []

    def write() -> bool:
        values.append(b"%d" % len(values))
        producer.send(ProducerRecord(topic, values[-1], partition=0)).result(DEADLINE_S)
        return True

    holds_for(write, seconds)
    return values


def test_a_producer_goes_on_over_sessions_and_tickets_that_end(
    kafka: LocalKafka, kdc: Kdc, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_client, "REAUTHENTICATE_AFTER", (0.5, 0.6))
    before = kdc.tickets_given_to("short")
    options = client_options(kafka, keytab_login(kdc, "short"), "SESSIONS")
    with KafkaProducer({**options, "linger.ms": "0"}) as producer:
        values = write_for(producer, topic, 3.5 * SHORT_S)
        assert metric(producer, REAUTHENTICATIONS) >= 3.5 * SHORT_S * 1000 / SESSION_MS
        assert metric(producer, "failed-reauthentication-total") == metric(producer, "record-retry-total") == 0
    assert kdc.tickets_given_to("short") >= before + 4
    assert written(kafka, topic, len(values)) == values


@pytest.fixture
def stopped_kdc(kdc: Kdc) -> Iterator[Kdc]:
    """Until the test ends it responds to no request."""
    kdc.process.send_signal(signal.SIGSTOP)
    yield kdc
    kdc.process.send_signal(signal.SIGCONT)


def test_while_the_kdc_hangs_ready_connections_produce_and_new_ones_fail_in_time(
    kafka: LocalKafka, kdc: Kdc, topic: str, request: pytest.FixtureRequest
) -> None:
    options = client_options(kafka, keytab_login(kdc, "short"))
    limits = {"max.block.ms": "4000"}
    with KafkaProducer({**options, "linger.ms": "0"}) as ready:
        values = write_for(ready, topic, 0.2)
        request.getfixturevalue("stopped_kdc")
        other = client_options(kafka, keytab_login(kdc, "orders", "debug=true"))
        with KafkaProducer({**other, **limits}) as waiting, pytest.raises(KafkaError, match="4000 ms"):
            waiting.send(ProducerRecord(topic, b"never", partition=0)).result(DEADLINE_S)
        more = write_for(ready, topic, 1.2 * SHORT_S)
    assert written(kafka, topic, len(values) + len(more)) == values + more


def test_without_a_kdc_the_error_names_krb5_conf_and_a_later_login_works(
    kafka: LocalKafka, kdc: Kdc, topic: str
) -> None:
    options = client_options(kafka, keytab_login(kdc, "orders"))
    kdc.realm.stop_kdc()
    try:
        error = error_of({**options, "sasl.login.retry.backoff.max.ms": "1000"}, topic)
    finally:
        kdc.realm.start_kdc()
    assert "Cannot contact any KDC for realm 'KRBTEST.COM'; see the realm's kdc in krb5.conf" in error
    write(options, topic, b"1")


@pytest.mark.parametrize(
    ("corrected", "reason"),
    [
        (True, "SASL_AUTHENTICATION_FAILED.* and the clocks of this machine and the brokers$"),
        (False, "Clock skew too great in KDC reply; set the clocks of this machine, the KDC and the brokers"),
    ],
    ids=["by the broker", "by the KDC"],
)
def test_a_clock_that_differs_is_named(
    kafka: LocalKafka,
    kdc: Kdc,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    corrected: bool,
    reason: str,
) -> None:
    conf = tmp_path / "krb5.conf"
    text = Path(kdc.environment["KRB5_CONFIG"]).read_text()
    # By default libkrb5 corrects its clock by the KDC's.
    conf.write_text(text.replace("[libdefaults]", f"[libdefaults]\n\tkdc_timesync = {int(corrected)}"))
    monkeypatch.setenv("KRB5_CONFIG", str(conf))
    kdc.restart("-T", "3600")
    try:
        error = error_of(client_options(kafka, keytab_login(kdc, "orders")), topic)
    finally:
        kdc.restart()
    assert re.search(reason, error)


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "replaced", "reason"),
    [
        ("missing", (), r"keyTab \S+missing.keytab of sasl\.jaas\.config cannot be read: No such file or directory$"),
        ("orders", ("orders@", "nobody@"), r"orders\.keytab of sasl\.jaas\.config has no key of principal nobody@"
         r"KRBTEST\.COM: No key table entry found for nobody@KRBTEST\.COM; klist -k \S+ lists its principals$"),
        ("retired", (), r"no ticket for retired@KRBTEST\.COM: Client 'retired@KRBTEST.COM' not found in Kerberos "
         r"database; see principal in sasl\.jaas\.config$"),
        ("changed", (), r"no ticket for changed@KRBTEST\.COM: \S.*; the keys in keyTab of sasl\.jaas\.config are not "
         "those of the KDC: write the keytab anew$"),
    ],
)  # fmt: skip
def test_a_keytab_that_does_not_log_in_is_one_clear_error(
    kafka: LocalKafka, kdc: Kdc, topic: str, user: str, replaced: tuple[str, ...], reason: str
) -> None:
    jaas = keytab_login(kdc, user)
    assert re.search(reason, error_of(client_options(kafka, jaas.replace(*replaced) if replaced else jaas), topic))


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        ("kafak", r"no ticket for kafak/127\.0\.0\.1: Server \S+ not found in Kerberos database; see sasl\.kerberos\."
         r"service\.name, and the host names in bootstrap\.servers and advertised\.listeners$"),
        # A service that the KDC knows, and the broker is not.
        ("stranger", r"refused the login with GSSAPI: SASL_AUTHENTICATION_FAILED.*: see sasl\.kerberos\.service\.name"),
    ],
)  # fmt: skip
def test_a_wrong_service_name_is_one_clear_error(
    kafka: LocalKafka, kdc: Kdc, topic: str, service: str, reason: str
) -> None:
    options = client_options(kafka, keytab_login(kdc, "orders"))
    assert re.search(reason, error_of({**options, "sasl.kerberos.service.name": service}, topic))


def test_a_missing_ticket_says_kinit(kafka: LocalKafka, topic: str, tmp_path: Path) -> None:
    advice = "run kinit as this process's user, or log in with useKeyTab=true in sasl.jaas.config"
    missing = error_of(client_options(kafka, TICKETS), topic)
    assert missing.endswith(advice)
    assert "There is no valid ticket in the ticket cache" in missing
    jaas = f'{TICKETS[:-1]} ticketCache="{tmp_path / "nowhere"}";'
    assert f"in ticketCache {tmp_path / 'nowhere'}" in error_of(client_options(kafka, jaas), topic)


def test_an_expired_ticket_says_kinit(kafka: LocalKafka, kdc: Kdc, topic: str) -> None:
    kdc.kinit(os.environ["KRB5CCNAME"], "-l", "1s")
    time.sleep(1.2)
    assert "it has expired; run kinit" in error_of(client_options(kafka, f"{TICKETS[:-1]} debug=true;"), topic)
