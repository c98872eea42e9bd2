"""What a mapping of Kafka's producer options means, and what is said about one that cannot work."""

import pickle

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.common.config.rules import OLD_NAMES
from spark_kafka_sink.errors import ConfigError
from tests.support import options as parsing
from tests.support.options import SERVERS, faults


def parse(prefix="", **options):
    """Options with underscores for dots."""
    return parsing.parse({name.replace("_", "."): value for name, value in options.items()}, prefix)


@pytest.mark.parametrize(
    ("option", "given", "meant"),
    [
        ("batch.size", " 5 ", 5),
        ("batch.size", "+5", 5),
        ("enable.idempotence", " TRUE ", True),
        ("enable.idempotence", False, False),
        ("acks", "-1", -1),
        ("acks", -1, -1),
        ("client.id", " spark ", "spark"),
        ("client.id", 7, "7"),
        ("metadata.recovery.strategy", "NONE", "none"),
        ("security.protocol", "plaintext", "PLAINTEXT"),
        ("compression.gzip.level", "-1", -1),
        ("linger.ms", None, 5),
    ],
)
def test_values_come_native_or_as_text(option, given, meant):
    assert getattr(ProducerConfig.parse({**SERVERS, option: given}), option.replace(".", "_")) == meant


@pytest.mark.parametrize(
    ("option", "given", "allowed"),
    [
        ("batch.size", "1e3", "a whole number of at least 0"),
        ("batch.size", "1_000", "a whole number of at least 0"),
        ("batch.size", -1, "a whole number of at least 0"),
        ("batch.size", 2**31, "a whole number of at least 0"),
        ("batch.size", 1.5, "a whole number of at least 0"),
        ("batch.size", True, "a whole number of at least 0"),
        ("batch.size", "", "a whole number of at least 0"),
        ("linger.ms", 2**63, "a whole number of at least 0"),
        ("request.timeout.ms", 0, "a whole number of at least 1"),
        ("compression.gzip.level", 0, "a whole number from 1 to 9, or -1"),
        ("compression.zstd.level", 23, "a whole number from -131072 to 22"),
        ("compression.type", "brotli", "one of none, gzip, snappy, lz4, zstd"),
        ("acks", "every", "one of all, -1, 0, 1"),
        ("acks", True, "one of all, -1, 0, 1"),
        ("enable.idempotence", "yes", "true or false"),
        ("client.id", b"x", "a string"),
        ("bootstrap.servers", 9092, "a comma-separated list"),
    ],
)
def test_a_bad_value_is_answered_with_option_value_and_what_is_allowed(option, given, allowed):
    assert faults({option: given}) == (f"{option} must be {allowed}, but is {given!r}.",)


def test_all_faults_come_in_one_error_with_the_prefix():
    said = faults({"batch.size": "x", "lingerms": 1, "metric.reporters": "a.B", "retries": -1}, "kafka.")
    assert said == (
        "kafka.batch.size must be a whole number of at least 0, but is 'x'.",
        "kafka.lingerms is not an option of Kafka's producer; did you mean kafka.linger.ms?",
        "kafka.metric.reporters is refused, because it needs a JVM: "
        "leave it out; see metrics() of KafkaProducer, and the receipts of the Spark sink.",
        "kafka.retries must be a whole number of at least 0, but is -1.",
    )


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("compresion.type", "; did you mean compression.type?"),
        ("batch_size", "; did you mean batch.size?"),
        ("linger", "; did you mean linger.ms?"),
        ("Acks", "; did you mean acks?"),
        ("schema.registy.url", "."),
    ],
)
def test_an_unknown_name_is_refused_with_the_closest_known(name, answer):
    assert faults({name: 1}) == (f"{name} is not an option of Kafka's producer{answer}",)


@pytest.mark.parametrize("name", ["sasl.password", "sasl_plain_password"])
def test_incident_the_closest_name_to_librdkafkas_password_was_that_of_a_key(name):
    (fault,) = faults({name: "x"})
    assert "user and password are in sasl.jaas.config, with the login module of sasl.mechanism." in fault
    assert "ssl.key.password" not in fault


CONSOLE = {
    "bootstrap.servers": "pkc-1.aws.confluent.cloud:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";',
    "client.dns.lookup": "use_all_dns_ips",
    "session.timeout.ms": "45000",
    "acks": "all",
    "schema.registry.url": "https://psrc-1.aws.confluent.cloud",
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "user:secret",
}
"""What a vendor's console hands out for Java clients."""


def test_incident_the_file_of_a_vendors_console_was_refused():
    with pytest.warns(ConfigWarning) as warned:
        ProducerConfig.parse(CONSOLE | {"consumer.max.poll.records": "5", "num.stream.threads": "2"})
    assert [str(each.message) for each in warned] == [
        "basic.auth.credentials.source, basic.auth.user.info, consumer.max.poll.records, num.stream.threads, "
        "schema.registry.url, session.timeout.ms: without effect here, because they belong to Kafka's other clients "
        "or to a schema registry."
    ]
    (fault,) = faults({**CONSOLE, "liger.ms": 5})
    assert fault == "liger.ms is not an option of Kafka's producer; did you mean linger.ms?"
    (fault,) = faults({"schema.registry.url": "http://r"}, "kafka.")
    assert fault.startswith("kafka.schema.registry.url is not an option of Kafka's producer")


def test_incident_a_file_of_librdkafka_was_refused_without_the_lines_to_write():
    given = {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p", "security.protocol": "SASL_SSL"}
    mechanism, user, password = faults({**given, "session.timeout.ms": 45000})
    assert mechanism.endswith("did you mean sasl.mechanism?")
    line = user[user.index("sasl.jaas.config=") :]
    ProducerConfig.parse({**CONSOLE, "sasl.jaas.config": line.removeprefix("sasl.jaas.config=")})
    assert "sasl.jaas.config" in password
    (partitioner,) = faults({"partitioner": "murmur2_random"})
    assert "write partitioner.class" in partitioner


def test_a_partitioner_class_of_the_jvm_is_refused_with_a_pointer():
    (fault,) = faults({"partitioner.class": "com.example.RegionPartitioner"})
    assert "RegionPartitioner" in fault
    assert "round_robin" in fault
    assert "a column named partition" in fault


@pytest.mark.parametrize("name", ["crc", "my_team.kafka", "my_team:", ":ByCountry", "my team:ByCountry", "a.b:C.d"])
def test_what_is_neither_a_partitioner_nor_a_class_is_refused(name):
    (fault,) = faults({"partitioner.class": name})
    assert name in fault


@pytest.mark.parametrize("package", ["org.apache.kafka.clients.producer.", ""])
@pytest.mark.parametrize(
    ("javas", "ours"),
    [
        ("internals.DefaultPartitioner", "sticky"),
        ("RoundRobinPartitioner", "round_robin"),
        ("UniformStickyPartitioner", "uniform_sticky"),
    ],
)
def test_kafkas_own_partitioners_have_the_names_of_their_java_classes(package, javas, ours):
    name = package + javas if package else javas.rpartition(".")[2]
    assert ProducerConfig.parse({**SERVERS, "partitioner.class": name}).partitioner_class == ours


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer", "interceptor.classes"])
@pytest.mark.parametrize("given", ["com.example.Avro", "org.apache.kafka.common.serialization.UUIDSerializer", "a.b:"])
def test_another_class_of_the_jvm_is_refused_with_what_to_use(name, given):
    (fault,) = faults({name: given})
    assert fault.startswith(name)
    assert repr(given) in fault
    assert "package.module:Class" in fault


@pytest.mark.parametrize(
    "given",
    [
        "io.confluent.kafka.serializers.KafkaAvroSerializer",
        "io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer",
        "KafkaAvroSerializer",
        "spark_kafka_sink:AvroSerializer",
    ],
)
@pytest.mark.parametrize(("side", "instead"), [("key", "keyFormat"), ("value", "valueFormat")])
def test_a_serializer_of_a_schema_registry_is_refused_with_what_to_use(given, side, instead):
    (fault,) = faults({f"{side}.serializer": given})
    assert fault.startswith(f"{side}.serializer is {given!r}")
    assert instead in fault
    assert "confluent-kafka" in fault


def test_a_class_of_the_users_own_may_be_called_as_confluents():
    config = ProducerConfig.parse({**SERVERS, "value.serializer": "shop.avro:AvroSerializer"})
    assert config.value_serializer == "shop.avro:AvroSerializer"


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer", "interceptor.classes"])
def test_an_empty_class_name_is_no_class(name):
    assert not getattr(ProducerConfig.parse({**SERVERS, name: ""}), name.replace(".", "_"))


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"enable.idempotence": False}, "enable.idempotence=true"),
        ({"acks": "1"}, "acks=all"),
        ({"retries": 0}, "retries=1 or more"),
        ({"enable.idempotence": False, "acks": 0}, "enable.idempotence=true, acks=all"),
    ],
)
def test_a_transactional_id_needs_idempotence_and_the_error_names_what_is_in_the_way(options, remedy):
    """Incident: with ``acks=1`` alone, it also asked for settings that were right."""
    assert faults({"transactional.id": "t", **options}) == (f"transactional.id needs idempotence: set {remedy}.",)


def test_an_empty_transactional_id_is_refused():
    (fault,) = faults({"transactional.id": ""})
    assert fault.startswith("transactional.id must not be empty")


@pytest.mark.parametrize(
    ("option", "value", "state"), [("acks", "1", "is 1"), ("acks", 0, "is 0"), ("retries", 0, "is 0")]
)
def test_idempotence_on_by_default_gives_way_with_one_warning(option, value, state):
    with pytest.warns(ConfigWarning) as shown:
        config = ProducerConfig.parse({**SERVERS, option: value}, "kafka.")
    assert not config.enable_idempotence
    assert [str(warning.message) for warning in shown if warning.category is ConfigWarning] == [
        f"kafka.{option} {state}, so idempotence, on by default, is off: retries may write records twice."
    ]


def test_incident_a_warning_showed_a_line_of_this_package():
    with pytest.warns(ConfigWarning) as shown, pytest.raises(ConfigError):
        KafkaProducer({**SERVERS, "acks": "1"}, interceptors=[None])
    assert [warning.filename for warning in shown] == [__file__]


@pytest.mark.parametrize(
    ("option", "value", "bad"),
    [("buffer.memory.allocation.strategy", "full", "none"), ("metadata.cluster.check.enable", "false", "no")],
)
def test_an_option_whose_effect_would_be_missed_warns_once_that_it_has_none(option, value, bad):
    with pytest.warns(ConfigWarning) as shown:
        ProducerConfig.parse({**SERVERS, option: value}, "kafka.")
    assert [str(warning.message) for warning in shown] == [f"kafka.{option} has no effect here; leave it out."]
    assert len(faults({option: bad})) == 1


@pytest.mark.parametrize(("option", "value", "needed"), [("acks", "1", "all"), ("retries", "0", "1 or more")])
def test_idempotence_set_by_hand_and_at_odds_is_an_error(option, value, needed):
    assert faults({option: value, "enable.idempotence": "true"}) == (
        f"{option} is {value}, but enable.idempotence=true needs {needed}; change one of them.",
    )


@pytest.mark.parametrize("others", [{}, {"acks": "1"}, {"enable.idempotence": True}])
def test_more_than_5_in_flight_with_idempotence_is_an_error_as_in_java_4(others):
    said = faults({"max.in.flight.requests.per.connection": 6, **others})
    assert said[0] == (
        "max.in.flight.requests.per.connection must be at most 5 to use the idempotent producer, but is 6; "
        "lower it or set enable.idempotence=false."
    )


def test_without_idempotence_any_number_may_be_in_flight():
    config = parse(enable_idempotence="false", acks=0, **{"max.in.flight.requests.per.connection": 6})
    assert (config.enable_idempotence, config.acks, config.max_in_flight_requests_per_connection) == (False, 0, 6)


def test_delivery_timeout_is_raised_unless_it_was_given():
    assert parse(linger_ms=200000).delivery_timeout_ms == 230000
    assert parse(delivery_timeout_ms=30005).delivery_timeout_ms == 30005
    assert faults({"delivery.timeout.ms": 30004}) == (
        "delivery.timeout.ms is 30004; it must be at least linger.ms + request.timeout.ms (5 + 30000).",
    )


@pytest.mark.parametrize(
    ("given", "holds"),
    [
        ({"buffer.memory": "1"}, "a record: at least 85 bytes."),
        ({"buffer.memory": 32_768, "batch.size": 65_536}, "a batch of kafka.batch.size: at least 65536 bytes."),
        ({"buffer.memory": 84, "batch.size": 0}, "a record: at least 85 bytes."),
    ],
)
def test_a_buffer_memory_that_holds_no_batch_was_accepted_and_failed_every_row(given, holds):
    said = f"kafka.buffer.memory is {int(given['buffer.memory'])}; it must hold {holds}"
    assert faults(given, "kafka.") == (said,)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"buffer_memory": 32_768}, 2_048),
        ({"buffer_memory": 100}, 6),
        ({"max_request_size": 100_000}, 100_000),
        ({"buffer_memory": 1 << 30, "max_request_size": 1 << 30}, 262_144),
    ],
)
def test_the_default_of_batch_size_shrinks_with_buffer_memory_and_max_request_size(given, size):
    assert parse(**given).batch_size == size


def test_with_acks_0_the_default_of_batch_size_is_kafkas():
    """A topic's max.message.bytes below batch.size would drop every batch, and no response would tell."""
    unacknowledged = {"acks": 0, "enable_idempotence": False}
    assert parse(**unacknowledged).batch_size == 16_384
    assert parse(**unacknowledged, buffer_memory=32_768).batch_size == 2_048
    assert parse(**unacknowledged, batch_size=100_000).batch_size == 100_000
    assert parse(acks=1, enable_idempotence=False).batch_size == 262_144


def test_a_rule_is_silent_about_options_already_at_fault():
    assert len(faults({"delivery.timeout.ms": 1, "linger.ms": "x"})) == 1


def test_a_lone_reconnect_backoff_does_not_grow():
    config = parse(reconnect_backoff_ms=5000)
    assert (config.reconnect_backoff_ms, config.reconnect_backoff_max_ms) == (5000, 5000)


@pytest.mark.parametrize(
    ("first", "longest", "value"),
    [
        ("retry.backoff.ms", "retry.backoff.max.ms", 5000),
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms", 5000),
        ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms", 50000),
    ],
)
def test_a_first_wait_above_the_longest_is_lowered_with_a_warning(first, longest, value):
    with pytest.warns(ConfigWarning, match=f"{first} .{value}. is above {longest} .10."):
        config = ProducerConfig.parse({**SERVERS, first: value, longest: 10})
    assert getattr(config, first.replace(".", "_")) == 10


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("a:1", (("a", 1),)),
        (" a:1 , b_c.d-e:65535 ", (("a", 1), ("b_c.d-e", 65535))),
        ("[::1]:9092", (("::1", 9092),)),
        ("::1:9092", (("::1", 9092),)),
        ("[fe80::1%eth0]:9092", (("fe80::1%eth0", 9092),)),
        ("PLAINTEXT://a:1,plaintext://[::1]:2", (("a", 1), ("::1", 2))),
        (["a:1", "b:2"], (("a", 1), ("b", 2))),
        ("a:1,", (("a", 1),)),  # refused once; Java takes it up to 4.0
        ("a:1,,b:2", (("a", 1), ("b", 2))),
    ],
)
def test_bootstrap_servers_are_host_and_port(given, addresses):
    assert parse(bootstrap_servers=given).bootstrap_servers == addresses


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("a", "entry 'a' is not host:port (an IPv6 address is written [::1]:9092)."),
        (":1", "entry ':1' is not host:port (an IPv6 address is written [::1]:9092)."),
        ("a:65536", "entry 'a:65536' has port 65536; ports go from 1 to 65535."),
        ("SSL://a:1", "entry 'SSL://a:1' asks for SSL, but security.protocol is PLAINTEXT."),
        (" , ", "is required: host:port of one or more brokers, separated by commas."),
        ([], "is required: host:port of one or more brokers, separated by commas."),
    ],
)
def test_a_bad_bootstrap_entry_is_named(given, wrong):
    assert faults({"bootstrap.servers": given}) == (f"bootstrap.servers {wrong}",)


def test_a_server_listed_twice_is_used_once_with_a_warning():
    with pytest.warns(ConfigWarning, match="lists a:1 more than once"):
        config = ProducerConfig.parse({"bootstrap.servers": "a:1,b:2,a:1"})
    assert config.bootstrap_servers == (("a", 1), ("b", 2))


def test_equal_configurations_are_one_key_and_survive_pickling():
    config = parse(batch_size="1", linger_ms=0)
    same = pickle.loads(pickle.dumps(parse(batch_size=1, linger_ms="0")))
    assert {config: 1}[same] == 1
    assert config != parse(batch_size=2, linger_ms=0)


def test_the_error_survives_pickling_with_its_faults():
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse({"acks": "x", "nonsense": 1})
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.faults == raised.value.faults
    assert str(copy).count("\n- ") == 2


@pytest.mark.parametrize("old", OLD_NAMES)
def test_a_name_of_kafka_0_8_is_refused_and_the_current_one_named(old):
    name = OLD_NAMES[old]
    assert faults({**SERVERS, old: "1"}, "kafka.") == (f"kafka.{old} is the old name of kafka.{name}; use that.",)
    assert faults({**SERVERS, old: "1"}) == (f"{old} is the old name of {name}; use that, or open_producer.",)
