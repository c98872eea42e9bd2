"""A SCRAM password that changes under a running query: at the brokers first, then in the file that has it."""

import time

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.contract.scenario import name
from tests.contract.security.clusters import ROTATED, SESSION_MS
from tests.contract.security.librdkafka import consume, produce
from tests.spark.test_security import GUARANTEES, await_rows, numbers, on_kafka

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
ROWS = 50


class Password:
    """The user's password at the brokers, and in a properties file."""

    def __init__(self, kafka, folder):
        self.file = folder / "kafka.properties"
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        self.change()

    def change(self):
        password = name("password")
        credential = UserScramCredentialUpsertion(
            ROTATED, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        (changed,) = self._admin.alter_user_scram_credentials([credential]).values()
        changed.result(30)
        self.file.write_text(f"password={password}\n")

    @property
    def jaas(self):
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return f'{module} required username="{ROTATED}" password="${{file:{self.file}:password}}";'


@on_kafka
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_running_query_goes_on_and_loses_nothing(spark, secure_kafka, tmp_path, guarantee):
    topic = name("rotated")
    secure_kafka.create_topic(topic)
    password = Password(secure_kafka, tmp_path)
    options = {**secure_kafka.spark_options("SESSIONS", ROTATED), "topic": topic}
    options["kafka.sasl.jaas.config"] = password.jaas
    if guarantee == "exactly-once":
        options |= {"deliveryGuarantee": guarantee, "transactionalIdPrefix": topic}
    source = tmp_path / "in"
    source.mkdir()
    frame = spark.readStream.schema("value string").parquet(str(source))
    writer = frame.writeStream.format("pykafka").options(**options).option("checkpointLocation", str(tmp_path / "at"))
    query = writer.trigger(processingTime="100 milliseconds").start()
    written = 0
    try:
        for _ in range(2):
            end = time.monotonic() + 1.5 * SESSION_MS / 1000
            while time.monotonic() < end:
                numbers(spark, written, written + ROWS).coalesce(2).write.mode("append").parquet(str(source))
                written += ROWS
                await_rows(query, written)
            password.change()
        numbers(spark, written, written + ROWS).coalesce(2).write.mode("append").parquet(str(source))
        written += ROWS
        await_rows(query, written)
    finally:
        query.stop()
    found = read_back(secure_kafka.client_options("SESSIONS"), topic, written)
    assert set(found) == set(range(written))
    if guarantee == "exactly-once":
        assert len(found) == written


def read_back(options, topic, at_least):
    """All rows, some perhaps twice."""
    produce(options, topic, [b"end"])
    count = at_least + 1
    while b"end" not in (values := consume(options, topic, count)):
        count *= 2
    return [int(value) for value in values if value != b"end"]
