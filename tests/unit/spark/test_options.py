"""Spark's options → SinkOptions; every fault of them in one error."""

import warnings

import pytest

from spark_kafka_sink.common.config import ConfigWarning
from spark_kafka_sink.common.config.producer_config import OPTIONS_BY_NAME
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.exactly_once.values import LedgerStart, RecoveryMode
from spark_kafka_sink.spark.options import SINK_OPTIONS, SinkOptions, TopicCreation

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}


def parse(options):
    """With a bootstrap server; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return SinkOptions.parse({**SERVERS, **options})


def faults(options, is_batch=False):
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({**SERVERS, **options}, is_batch=is_batch)
    return raised.value.faults


def test_the_prefix_is_stripped_and_the_rest_is_the_producers():
    options = parse({"kafka.batch.size": "1", "KAFKA.Linger.MS": "0"})
    assert (options.producer.batch_size, options.producer.linger_ms) == (1, 0)
    assert (options.topic, options.timestamp_column) == (None, None)


def test_options_of_a_registry_have_no_prefix():
    (fault,) = faults({"kafka.schema.registry.url": "http://r"})
    assert fault == "kafka.schema.registry.url is an option of the sink: write schema.registry.url, without kafka."
    for name in ("kafka.schema.registry.proxy.host", "kafka.max.retries"):
        (fault,) = faults({name: "1"})
        assert fault.startswith(f"{name} is not an option of Kafka's producer")


@pytest.mark.parametrize(
    "given",
    [
        *[{"includeheaders": value} for value in ("true", "false", "TRUE")],
        {"checkpointlocation": "/c"},
        {"deliveryguarantee": "at-least-once"},
        {"asyncprogresstrackingenabled": "False", "asyncprogresstrackingcheckpointintervalms": "1"},
    ],
    ids=str,
)
def test_an_option_of_spark_or_a_default_changes_nothing(given):
    """Incident: options of Spark's query were refused, with advice to write them ``kafka.…``."""
    assert parse(given) == parse({})


def test_options_of_kafka_0_8_are_refused_with_the_current_one_or_the_reason():
    assert faults({"kafka.request.required.acks": "1"}) == (
        "kafka.request.required.acks is the old name of kafka.acks; use that.",
    )
    assert faults(
        {"kafka.producer.type": "sync", "kafka.serializer.class": "a.b:C", "kafka.key.serializer.class": "d"}
    ) == (
        "Kafka option 'value.serializer' is not supported as values are serialized with ByteArraySerializer.",
        "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer.",
        "kafka.producer.type is an option of Kafka 0.8; leave it out, the producer is always asynchronous here.",
    )
    assert faults({"metadata.broker.list": "h:1"}) == (
        "metadata.broker.list is an old option of Kafka's producer: write kafka.bootstrap.servers.",
    )


EXACTLY_ONCE = {"deliveryguarantee": "exactly-once"}


def test_at_least_once_takes_no_option_of_the_other():
    assert parse({}).exactly_once is None
    assert faults({"txnappid": "a", "txnversion": "1"}) == (
        "txnAppId, txnVersion need deliveryGuarantee=exactly-once: set that, or leave them out.",
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, None),
        ({"queryname": "q"}, "spark-q"),
        ({"queryname": "q", "checkpointlocation": "s3://b/c"}, "spark-f19ffe756426ece6"),
        ({"checkpointLocation": "s3://b/c/"}, "spark-f19ffe756426ece6"),
        ({"txnappid": "a", "txnversion": "1"}, "a"),
        ({"checkpointlocation": "s3://b/c", "transactionalidprefix": "mine"}, "mine"),
    ],
)
def test_the_name_is_the_same_in_every_run(options, name):
    assert parse({**EXACTLY_ONCE, **options}).exactly_once.name == name


def test_a_batch_write_has_no_second_name():
    two = {"txnappid": "a", "txnversion": "1", "transactionalidprefix": "mine"}
    (fault,) = faults({**EXACTLY_ONCE, **two}, is_batch=True)
    assert fault.startswith("transactionalIdPrefix and txnAppId exclude each other")


def test_exactly_once_has_a_producer_that_can_keep_it():
    producer = parse(EXACTLY_ONCE).producer
    assert (producer.acks, producer.enable_idempotence, producer.transaction_timeout_ms) == (-1, True, 900_000)
    assert parse({**EXACTLY_ONCE, "kafka.transaction.timeout.ms": "5"}).producer.transaction_timeout_ms == 5
    assert "acks" in faults({**EXACTLY_ONCE, "kafka.acks": "1"})[0]


@pytest.mark.parametrize(
    "start",
    ["trust-checkpoint", "trust-ledger:", "trust-ledger:x", "trust-ledger:-1", "trust:3", "replaces:", "replaces:q:x"],
)
def test_trust_without_the_batch_that_it_is_for_is_refused(start):
    assert faults({**EXACTLY_ONCE, "ledgerstart": start}) == (
        "ledgerStart must be strict, trust-checkpoint:N or trust-ledger:N (N: the batch), or replaces:QUERY (its id), "
        f"but is {start!r}.",
    )


@pytest.mark.parametrize(
    "start", ["strict", "trust-checkpoint:0", "trust-ledger:20250131", "replaces:Q1", "replaces:q:2"]
)
def test_trust_names_the_batch_that_it_is_for(start):
    assert parse({**EXACTLY_ONCE, "ledgerstart": start}).exactly_once.ledger_start == start


def test_incident_the_largest_version_was_named_by_an_error_and_refused_as_a_value():
    largest = (1 << 63) - 1
    start = parse({**EXACTLY_ONCE, "ledgerstart": f"trust-ledger:{largest}"}).exactly_once.ledger_start
    assert LedgerStart.parse(start).trusts(RecoveryMode.LEDGER, largest)


def test_only_a_query_replaces_another_one():
    job = {**EXACTLY_ONCE, "txnappid": "a", "txnversion": "1", "ledgerstart": "replaces:q"}
    assert faults(job, is_batch=True) == ("ledgerStart=replaces is for a query: leave it out of a batch write.",)


@pytest.mark.parametrize("half", [{"txnappid": "a"}, {"txnversion": "1"}])
def test_an_application_and_its_version_belong_together(half):
    (fault,) = faults({**EXACTLY_ONCE, **half})
    assert fault == "txnAppId and txnVersion belong together: a batch write needs both, a query neither."


@pytest.mark.parametrize("version", ["-1", "2025-01-31"])
def test_incident_a_version_that_is_not_valid_was_said_to_be_missing(version):
    (told,) = faults({**EXACTLY_ONCE, "txnappid": "a", "txnversion": version})
    assert told.startswith("txnVersion ")
    assert told.endswith("Write a date as 20250131.")


@pytest.mark.parametrize("name", ["fo\ud800o", "kafka.fo\ud800o", "schema.registry.fo\ud800o", "topic.creation.\ud800"])
def test_incident_a_name_with_half_a_character_made_an_error_that_could_not_be_printed(name):
    told = faults({name: "1"})
    assert all(each.isprintable() for each in told)
    assert "\\ud800" in "".join(told)


def test_incident_a_txn_app_id_was_named_as_one_of_three_options():
    (told,) = faults({**EXACTLY_ONCE, "txnappid": "a\ud800b", "txnversion": "1"})
    assert told == "txnAppId 'a\\ud800b' must have printable characters only."


@pytest.mark.parametrize("character", ["\t", "\x1b", "\ud800", "\u2028"])
@pytest.mark.parametrize("source", [{"transactionalidprefix"}, {"queryname"}, {"txnappid", "txnversion"}], ids=min)
def test_a_name_that_could_not_be_read_back_is_refused(source, character):
    """Its entry would pass for another's, and the batch be written again."""
    given = {name: "1" if name == "txnversion" else f"night{character}ly" for name in source}
    (told,) = faults({**EXACTLY_ONCE, **given})
    assert "must have printable characters only" in told
    assert told.isprintable()


def test_asynchronous_progress_is_refused():
    (fault,) = faults({"asyncprogresstrackingenabled": "true", "unknownoptions": "warn"})
    assert fault.startswith("asyncProgressTrackingEnabled must be false, because with true, Spark notes only some mi")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"startingoffsets": "earliest", "maxfilespertrigger": "1", "kafka.group.id": "g"},
            "kafka.group.id, maxFilesPerTrigger, startingOffsets have no effect on a write: only sources read such "
            "options.",
        ),
        ({"path": "some/path"}, "path (the argument of save or start) has no effect: rows go to topics."),
    ],
)
def test_options_without_effect_pass_with_one_warning(options, text):
    with pytest.warns(ConfigWarning) as shown:
        SinkOptions.parse({**SERVERS, **options})
    assert [str(warning.message) for warning in shown] == [text]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("kafk.batch.size", "kafk.batch.size is not an option of pykafka; did you mean kafka.batch.size?"),
        ("lingerms", "lingerms is not an option of pykafka; did you mean kafka.linger.ms?"),
        ("query_name", "query_name is not an option of pykafka; did you mean queryName?"),
        ("kafka.topic", "kafka.topic is an option of the sink: write topic, without kafka."),
        (
            "kafka.checkpointlocation",
            "kafka.checkpointlocation is an option of the sink: write checkpointLocation, without kafka.",
        ),
        ("bootstrap.servers", "bootstrap.servers is an option of Kafka's producer: write kafka.bootstrap.servers."),
        (
            "sasl.username",
            "sasl.username is not an option of Kafka's Java producer: user and password are in kafka.sasl.jaas.config, "
            "with the login module of kafka.sasl.mechanism. Write for PLAIN (for SCRAM with "
            "org.apache.kafka.common.security.scram.ScramLoginModule): kafka.sasl.jaas.config="
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="USER" password="PASSWORD";',
        ),
        (
            "value.serializer",
            "Kafka option 'value.serializer' is not supported as values are serialized with ByteArraySerializer.",
        ),
        (
            "isolation.level",
            "isolation.level is an option of Kafka's consumer, not of its producer: leave it out here.",
        ),
        ("encoder", "encoder is not an option of pykafka. Options of Kafka's producer are written kafka.<name>."),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_suggestion(name, answer):
    assert faults({name: "x"}) == (answer,)


WRITTEN = [option.name for option in SINK_OPTIONS if not option.name.startswith("topic.creation.")]
WRITTEN += [f"kafka.{name}" for name in OPTIONS_BY_NAME] + ["checkpointLocation", "queryName"]


@pytest.mark.parametrize("misspelt", [lambda name: name[:-2] + name[-1], lambda name: f"{name}s"], ids=["lacks", "has"])
def test_each_name_with_one_wrong_letter_is_told_a_name(misspelt):
    """As Spark passes them, in lower case."""
    wrong = {misspelt(name.lower()) for name in WRITTEN} - {name.lower() for name in WRITTEN}
    told = [fault for fault in faults(dict.fromkeys(wrong, "x")) if "is not an option of" in fault]
    assert len(told) == len(wrong)
    assert [fault for fault in told if "did you mean" not in fault] == []


@pytest.mark.parametrize(
    ("name", "instead"), [("interceptor.classes", "Change the columns"), ("transactional.id", "deliveryGuarantee")]
)
def test_what_columns_bypass_and_what_tasks_would_share_is_refused_with_the_way_that_works(name, instead):
    (fault,) = faults({f"kafka.{name}": "x"})
    assert fault.startswith(f"kafka.{name} is refused")
    assert instead in fault


def test_enumerated_values_ignore_case():
    letters = {"deadlettertopic": "d", "deadletteron": "Null-Topic,ENCODE", "deadletterlimit": "None"}
    options = parse({"deliveryguarantee": "EXACTLY-ONCE", "ledgerstart": "Trust-Ledger:3", **letters})
    assert LedgerStart.parse(options.exactly_once.ledger_start) == LedgerStart(RecoveryMode.LEDGER, 3)
    assert {reason.value for reason in options.dead_letters.reasons} == {"null-topic", "encode"}
    assert options.dead_letters.limit is None


def test_faults_of_the_sink_and_of_kafka_come_in_one_message():
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({"topic": " ", "topics": "x", "kafka.acks": "2", "kafka.lingerms": "1"})
    assert str(raised.value) == (
        "- topic is blank; give it a value or leave it out.\n"
        "- topics is not an option of pykafka; did you mean topic?\n"
        "- kafka.acks must be one of all, -1, 0, 1, but is '2'.\n"
        "- kafka.lingerms is not an option of Kafka's producer; did you mean kafka.linger.ms?\n"
        "- kafka.bootstrap.servers is required: host:port of one or more brokers, separated by commas."
    )


# Of Spark's KafkaSourceProvider, and consumer options of its users.
READING = {
    "subscribe": "t", "startingoffsets": "earliest", "failondataloss": "false", "minpartitions": "8",
    "maxoffsetspertrigger": "1000", "includeheaders": "true", "kafkaconsumer.polltimeoutms": "1000",
    "kafka.group.id": "g", "kafka.isolation.level": "read_committed", "kafka.max.poll.records": "500",
    "kafka.auto.offset.reset": "latest", "kafka.fetch.max.bytes": "1",
    "kafka.value.deserializer": "d", "kafka.session.timeout.ms": "1",
}  # fmt: skip


def test_one_set_of_options_serves_reading_and_writing_with_one_warning():
    with pytest.warns(ConfigWarning) as shown:
        options = SinkOptions.parse({**SERVERS, **READING, "kafka.client.id": "me", "topic": "u"})
    (warning,) = shown
    assert "kafka.isolation.level, kafka.max.poll.records, kafka.session.timeout.ms" in str(warning.message)
    assert options == parse({"kafka.client.id": "me", "topic": "u"})


VENDORS = {"kafka.confluent.monitoring": "x", "vendor.tag": "y", "schema.registry.vendor": "z"}


def test_unknown_options_are_ignored_with_one_warning_if_the_user_says_so():
    with pytest.warns(ConfigWarning) as shown:
        options = SinkOptions.parse({**SERVERS, **VENDORS, "topics": "x", "unknownoptions": "Warn"})
    (warning,) = shown
    assert all(f"\n- {name} is not an option of" in str(warning.message) for name in VENDORS)
    assert "- topics is not an option of pykafka; did you mean topic?" in str(warning.message)
    assert options == parse({})


@pytest.mark.parametrize("chosen", [{}, {"unknownoptions": "refuse"}])
def test_unknown_options_are_refused_unless_told_otherwise(chosen):
    told = faults({**VENDORS, "valueformat": "avro", **chosen})
    assert sum(" is not an option of " in fault for fault in told) == 3


@pytest.mark.parametrize(
    "option", [{"kafka.transactional.id": "t"}, {"kafka.acks": "2"}, {"kafka.key.serializer": "x"}, {"topic": " "}]
)
def test_what_the_sink_knows_is_checked_also_where_unknown_options_are_ignored(option):
    assert len(faults({**option, "unknownoptions": "warn"})) == 1


@pytest.mark.parametrize("name", ["a b", "ä", "a/b", ".", "..", "a" * 250, "a\tb"])
@pytest.mark.parametrize("option", ["topic", "receiptsTopic", "ledgerTopic"])
def test_a_topic_name_that_kafka_refuses_is_refused_on_the_driver(option, name):
    given = {option.lower(): name, **EXACTLY_ONCE}
    (fault,) = faults(given)
    assert fault.startswith(f"{option} '")
    assert "is not a valid topic name" in fault


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"topic": "ledger", "ledgerTopic": "ledger"}, "topic and ledgerTopic are both ledger"),
        ({"receiptsTopic": "__pykafka_ledger"}, "ledgerTopic and receiptsTopic are both __pykafka_ledger"),
        ({"deadLetterTopic": "__pykafka_ledger"}, "ledgerTopic and deadLetterTopic are both __pykafka_ledger"),
        ({"topic": "t", "receiptsTopic": "t"}, "topic and receiptsTopic are both t"),
        ({"deadLetterTopic": "d", "receiptsTopic": "d"}, "receiptsTopic and deadLetterTopic are both d"),
    ],
)
def test_incident_two_options_named_the_same_topic(given, fault):
    """Rows in the ledger stopped the query."""
    assert faults({**EXACTLY_ONCE, **given}) == (f"{fault}: each needs a topic of its own.",)


@pytest.mark.parametrize("option", ["topic", "receiptsTopic", "deadLetterTopic"])
def test_incident_an_at_least_once_write_created_the_ledger_as_a_topic_of_rows(option):
    """With the brokers' number of partitions, so that every exactly-once write was refused afterwards."""
    (fault,) = faults({option: "__pykafka_ledger"})
    assert fault.endswith("are both __pykafka_ledger: each needs a topic of its own.")


@pytest.mark.parametrize(
    ("name", "says"), [("no_such_module:Class", "ModuleNotFoundError"), ("json:NoSuchClass", "AttributeError")]
)
def test_a_partitioner_that_cannot_be_imported_is_refused_on_the_driver(name, says):
    (fault,) = faults({"kafka.partitioner.class": name})
    assert fault.startswith(f"kafka.partitioner.class {name} cannot be loaded: {says}")


def test_a_partitioner_is_imported_on_the_driver_but_not_called(tmp_path, monkeypatch):
    (tmp_path / "partitioner_of_a_user.py").write_text("class Mine:\n    def __init__(self):\n        raise OSError\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = "partitioner_of_a_user:Mine"
    assert parse({"kafka.partitioner.class": name}).producer.partitioner_class == name


# Topics that the sink creates.


def test_by_default_the_brokers_decide_as_for_javas_producer():
    assert parse({}) == parse({"topiccreation": "broker"})
    assert (parse({}).topic_creation, parse({}).producer.allow_auto_create_topics) == (None, True)


@pytest.mark.parametrize("policy", ["never", "create"])
def test_no_request_of_a_task_lets_brokers_create_a_topic(policy):
    options = parse({"topiccreation": policy})
    assert (options.topic_creation, options.producer.allow_auto_create_topics) == (
        TopicCreation(create=policy == "create"), False,
    )  # fmt: skip


def test_the_settings_of_new_topics_have_connects_names():
    options = {
        "topic.creation.default.partitions": "6",
        "topic.creation.default.replication.factor": "3",
        "topic.creation.default.retention.ms": " 1000 ",
        "topic.creation.default.cleanup.policy": "compact",
    }
    assert parse({"topiccreation": "create", **options}).topic_creation == TopicCreation(
        True, 6, 3, (("cleanup.policy", "compact"), ("retention.ms", "1000"))
    )
    assert faults({**options}) == (
        "topic.creation.default.cleanup.policy, topic.creation.default.partitions, "
        "topic.creation.default.replication.factor, topic.creation.default.retention.ms need "
        "topicCreation=create: set that, or leave them out.",
    )


@pytest.mark.parametrize(("given", "meant"), [("partition", "partitions"), ("replicaton.factor", "replication.factor")])
def test_a_misspelt_count_is_no_setting_of_a_topic(given, meant):
    name = f"topic.creation.default.{given}"
    (fault,) = faults({"topiccreation": "create", name: "6"})
    assert fault == f"{name} is not a setting of a topic; did you mean topic.creation.default.{meant}?"


def test_minus_1_is_the_brokers_default_and_0_is_refused():
    assert parse({"topiccreation": "create", "topic.creation.default.partitions": "-1"}) == parse(
        {"topiccreation": "create"}
    )
    assert faults({"topiccreation": "create", "topic.creation.default.replication.factor": "0"}) == (
        "topic.creation.default.replication.factor must be a whole number of at least 1, or -1, but is '0'.",
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("topic.creation.groups", "the settings topic.creation.default.<setting> are for every topic"),
        ("topic.creation.logs.partitions", "are for every topic that is created"),
        ("topic.creation.default.include", "for every topic that is created"),
        ("topic.creation.default.", "lacks the name of a topic's setting"),
    ],
)
def test_connects_groups_of_topics_are_refused(name, said):
    (fault,) = faults({"topiccreation": "create", name: "x"})
    assert fault.startswith(f"{name} ")
    assert said in fault


@pytest.mark.parametrize(("policy", "flag"), [("never", "true"), ("create", "TRUE"), ("broker", "false")])
def test_a_flag_of_the_producer_that_contradicts_is_one_error(policy, flag):
    assert faults({"topiccreation": policy, "kafka.allow.auto.create.topics": flag}) == (
        f"kafka.allow.auto.create.topics={flag.lower()} and topicCreation={policy} contradict each other: leave out "
        "kafka.allow.auto.create.topics.",
    )
