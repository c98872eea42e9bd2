"""What a run writes with: which options are taken over, and the names of what it makes."""

import pytest

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark.options import LEDGER_TOPIC, SinkOptions
from spark_kafka_sink.tools.certification.plan import AT_LEAST_ONCE, BATCH, EXACTLY_ONCE, KINDS, STREAM, Kind, Plan

GIVEN = {"kafka.bootstrap.servers": "kafka1:9092"}


def plan(rows=10, *, is_connect=False, **options):
    return Plan.of({**GIVEN, **options}, rows, is_connect=is_connect)


def faults(options, rows=10, *, is_connect=False):
    with pytest.raises(ConfigError) as raised:
        Plan.of(options, rows, is_connect=is_connect)
    return list(raised.value.faults)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {**GIVEN, "kafka.acks": "7"},
        {**GIVEN, "kafka.acks": "7", "kafka.linger.ms": "soon"},
        {**GIVEN, "kafka.transaction.timeout": "7"},
        {**GIVEN, "commitLogTopic": "no topic!"},
        {**GIVEN, "topic": "a/b"},
        {**GIVEN, "driverCheck": "perhaps"},
        {**GIVEN, "kafka.sasl.mechanism": "PLAIN", "kafka.security.protocol": "SASL_SSL"},
    ],
)
def test_wrong_options_have_the_faults_of_a_write(wrong):
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({**{name.lower(): value for name, value in wrong.items()}, "deliveryguarantee": EXACTLY_ONCE})
    assert faults(wrong) == list(raised.value.faults)


def test_all_faults_are_told_at_once():
    told = "\n".join(faults({**GIVEN, "Topic": "a", "topic": "b", "kafka.acks": "7"}, 0, is_connect=True))
    for fault in ("the same option", "rows is 0", "checkpointLocation", "acks"):
        assert fault in told


@pytest.mark.parametrize(
    "given",
    [
        {"txnAppId": "nightly", "txnVersion": "7", "deliveryGuarantee": "exactly-once"},
        {"neverRepeated": "true", "deliveryGuarantee": "Exactly-Once"},
        {"txnAppId": "of kafka_batches, which numbers the batches itself"},
        {"commitLogTopic": "ledger", "deliveryGuarantee": "at-least-once"},
    ],
)
def test_options_of_one_write_are_replaced(given):
    made = plan(**given)
    assert made.untried == ()
    assert made.write_options(Kind(EXACTLY_ONCE, STREAM)).keys().isdisjoint({"txnVersion", "txnAppId", "neverRepeated"})
    assert made.write_options(Kind(EXACTLY_ONCE, BATCH))["txnAppId"] == f"{made.mark}-batch"


def test_a_blank_checkpoint_location_was_the_root_of_the_file_system():
    for blank in ("", "  "):
        assert faults({**GIVEN, "checkpointLocation": blank}) == [
            "checkpointLocation is blank; give it a value or leave it out."
        ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"deliveryGuarantee": "sometimes"}, {"ledgerStart": "soon"}, {"txnAppId": "a", "txnVersion": "x"},
        {"txnVersion": "7"}, {"txnAppId": "a", "txnVersion": "1", "neverRepeated": "true"},
    ],
)  # fmt: skip
def test_wrong_values_of_options_that_are_replaced_were_ignored(wrong):
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({"deliveryguarantee": EXACTLY_ONCE, **GIVEN, **{name.lower(): wrong[name] for name in wrong}})
    assert faults({**GIVEN, **wrong}) == list(raised.value.faults)


def test_every_name_begins_with_the_given_one_and_has_the_mark():
    made = plan(topic="orders", transactionalIdPrefix="app", commitLogTopic="ledger", checkpointLocation="s3a://b/c/")
    for kind in KINDS:
        options = made.write_options(kind)
        assert options["topic"] == f"orders-{made.mark}-{kind.guarantee}-{kind.way}"
        assert options["deliveryGuarantee"] == kind.guarantee
        if kind.guarantee == EXACTLY_ONCE:
            assert options["commitLogTopic"] == f"ledger-{made.mark}"
            assert options["transactionalIdPrefix"] == f"app-{made.mark}-{kind.way}"
        else:
            assert options.keys().isdisjoint({"commitLogTopic", "transactionalIdPrefix", "txnAppId"})
    assert made.checkpoint == f"s3a://b/c/spark-kafka-sink-{made.mark}"


def test_without_names_they_begin_with_those_of_the_package():
    made = plan()
    assert made.topic(KINDS[0]) == f"spark-kafka-sink-{made.mark}-at-least-once-batch"
    assert made.ledger_topic == f"{LEDGER_TOPIC}-{made.mark}"
    assert made.checkpoint.startswith("file:///")


def test_no_two_runs_share_a_name():
    assert plan().mark != plan().mark


def test_the_longest_name_of_a_topic_is_cut_and_stays_apart():
    made = plan(topic="x" * 249, commitLogTopic="y" * 249)
    names = [*map(made.topic, KINDS), made.ledger_topic]
    assert {len(each) for each in names} == {249}
    assert len(set(names)) == 5


def test_each_write_passes_the_options_of_the_sink():
    made = plan(topic="orders", **{"kafka.compression.type": "zstd"})
    for kind in KINDS:
        options = {name.lower(): value for name, value in made.write_options(kind).items()}
        assert options["kafka.compression.type"] == "zstd"
        SinkOptions.parse(options)


def test_what_is_not_tried_is_told_and_left_out():
    made = plan(includeHeaders="true", receiptsTopic="r", topic="orders", **{"kafka.LINGER.ms": "5"})
    assert made.untried == ("receiptsTopic",)
    assert made.given == ("kafka.LINGER.ms", "kafka.bootstrap.servers")
    assert "receiptstopic" not in {name.lower() for name in made.write_options(KINDS[0])}


def test_the_plan_shows_no_password():
    secret = "hunter22"
    made = plan(**{
        "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="a" password="{secret}";',
    })  # fmt: skip
    assert secret not in repr(made)
    assert secret in str(made.write_options(KINDS[0]))


@pytest.mark.parametrize(("rows", "stream"), [(1, 2), (2, 2), (1001, 1000)])
def test_each_run_of_a_query_has_as_many_rows(rows, stream):
    made = plan(rows)
    assert made.rows_of(Kind(AT_LEAST_ONCE, BATCH)) == rows
    assert made.rows_of(Kind(AT_LEAST_ONCE, STREAM)) == stream
