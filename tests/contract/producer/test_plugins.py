"""Interceptors and serializers: what each is told, in which order, and what one that fails costs."""

from dataclasses import dataclass

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord, SyncProducer
from spark_kafka_sink.errors import (
    BrokerError,
    ConfigError,
    InvalidRecordError,
    KafkaTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.producer.record import RecordMetadata
from spark_kafka_sink.producer.serializers import (
    BytesSerializer,
    DoubleSerializer,
    HeadersSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    NullSerializer,
    Serializer,
    StringSerializer,
)
from tests.support.waiting import DEADLINE_S
from tests.unit.partitioning.own_partitioners import Raises

HERE = __name__
CALLS: list[tuple] = []
"""What was called; a test clears it."""


class Tagging(ProducerInterceptor):
    """Puts its tag behind the value and notes every call."""

    def __init__(self, tag, calls):
        self.tag = tag
        self.calls = calls

    def configure(self, config):
        self.calls.append((self.tag, "configure", config["client.id"]))

    def on_send(self, record):
        return ProducerRecord(record.topic, record.value + self.tag, record.key)

    def on_acknowledgement(self, metadata, error):
        self.calls.append((self.tag, metadata, error))

    def close(self):
        self.calls.append((self.tag, "close"))


class Failing(ProducerInterceptor):
    def on_send(self, record):
        raise RuntimeError("no")

    def on_acknowledgement(self, metadata, error):
        raise RuntimeError("no")

    def close(self):
        raise RuntimeError("no")


class Forgetful(ProducerInterceptor):
    def on_send(self, record):
        return None


def test_each_gets_what_the_one_before_made_of_the_record_and_failures_of_others_are_logged(broker, caplog):
    calls = []
    chain = [Tagging(b"a", calls), Failing(), Forgetful(), Tagging(b"b", calls)]
    with KafkaProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "c"}, interceptors=chain
    ) as producer:
        metadata = producer.send(ProducerRecord("t", b"v")).result(DEADLINE_S)
        with pytest.raises(RecordTooLargeError):
            producer.send(ProducerRecord("t", bytes(2 << 20)))
    assert broker.topic("t").values() == [b"vab"]
    tags = (b"a", b"b")
    assert calls[:4] == [*((tag, "configure", "c") for tag in tags), *((tag, metadata, None) for tag in tags)]
    assert [(tag, type(error)) for tag, _, error in calls[4:6]] == [(tag, RecordTooLargeError) for tag in tags]
    assert calls[6:] == [(tag, "close") for tag in tags]
    for method in ("on_send for topic t", "on_acknowledgement", "close"):
        assert f"Failing failed in {method}" in caplog.text
    assert "on_send must return a ProducerRecord, not None" in caplog.text


def test_interceptors_that_an_option_names_come_before_those_that_are_given(broker):
    class Given(ProducerInterceptor):
        def on_send(self, record):
            return ProducerRecord(record.topic, record.value + b"+given")

    CALLS.clear()
    options = {"bootstrap.servers": broker.bootstrap_servers, "interceptor.classes": f"{HERE}:TagsItsClass"}
    with KafkaProducer(options, interceptors=[Given()]) as producer:
        producer.send(ProducerRecord("t", b"v"))
    assert broker.topic("t").values() == [b"v+class+given"]
    assert CALLS == [("interceptor", 5), ("interceptor closed",)]


def test_a_class_without_the_methods_of_an_interceptor_is_a_config_error(broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "interceptor.classes": [f"{HERE}:NoSerializer"]}
    with pytest.raises(ConfigError, match=r"interceptor.classes .*NoSerializer has no method configure, on_send"):
        KafkaProducer(options)


class Told(ProducerInterceptor):
    def __init__(self):
        self.told = []

    def on_acknowledgement(self, metadata, error):
        self.told.append((metadata, type(error)))


class OfKafkaPython:
    def serialize(self, topic, value):
        return value


@pytest.mark.parametrize("opened", [KafkaProducer, SyncProducer])
def test_incident_a_function_as_serializer_was_an_attribute_error(broker, opened):
    with opened(
        {"bootstrap.servers": broker.bootstrap_servers}, key_serializer=str.encode, value_serializer=lambda it: it[::-1]
    ) as producer:
        for record in (ProducerRecord("t", b"ab", "k"), ProducerRecord("t")):
            producer.send(record)
        with pytest.raises(InvalidRecordError, match=r"value_serializer that returns bytes"):
            producer.send(ProducerRecord("t", "a str"))
    assert [(each.key, each.value) for each in broker.topic("t").records()] == [(b"k", b"ba"), (None, None)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"value_serializer": "json"},
            "value_serializer: str has no method configure, serialize, close; .*lambda value",
        ),
        ({"key_serializer": OfKafkaPython()}, "key_serializer: OfKafkaPython has no method configure, close; inherit"),
        ({"value_serializer": JsonSerializer}, r"value_serializer is the class JsonSerializer: .*JsonSerializer\(\)"),
        ({"value_serializer": lambda value, context: value}, "is called with one argument, which .*context"),
        ({"interceptors": [object()]}, "interceptors: object has no method configure, on_send, .*ProducerInterceptor"),
        ({"interceptors": [Told]}, r"interceptors is the class Told: give an instance of it, such as Told\(\)"),
        ({"interceptors": Forgetful()}, "interceptors must be a list of ProducerInterceptors, not <"),
    ],
    ids=range(7),
)
def test_what_is_no_serializer_or_interceptor_is_refused_with_what_is_needed(given, said):
    with pytest.raises(ConfigError, match=said):
        KafkaProducer({"bootstrap.servers": "h:1"}, **given)


def test_the_sync_producer_has_no_interceptors():
    with pytest.raises(ConfigError, match="interceptor.classes needs the asynchronous producer"):
        SyncProducer({"bootstrap.servers": "h:1", "interceptor.classes": f"{HERE}:TagsItsClass"})


def failed_on(topic, partition):
    return RecordMetadata(topic, partition, -1, -1, -1, -1)


def test_the_partition_of_a_record_that_a_broker_refuses_is_named(broker):
    broker.create_topic("small", partitions=3, configs={"max.message.bytes": "100"})
    told = Told()
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}, interceptors=[told]) as producer:
        future = producer.send(ProducerRecord("small", b"x" * 1_000, b"a key"))
        with pytest.raises(BrokerError):
            future.result(DEADLINE_S)
        delivered = producer.send(ProducerRecord("small", b"x", b"a key"))
        partition = delivered.result(DEADLINE_S).partition
    assert told.told[0] == (failed_on("small", partition), BrokerError)
    assert future.partition() == delivered.partition() == partition


def test_a_record_that_fails_before_it_has_a_batch_names_the_partition_it_asked_for(broker):
    told = Told()
    options = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000}
    producer = KafkaProducer({**options, "delivery.timeout.ms": 120_000}, interceptors=[told])
    futures = [producer.send(ProducerRecord("t", b"v")), producer.send(ProducerRecord("t", b"v", partition=0))]
    producer.close(0)
    assert told.told == [(failed_on("t", -1), ProducerClosedError), (failed_on("t", 0), ProducerClosedError)]
    assert [future.partition() for future in futures] == [None, None]


def test_interceptors_see_that_send_itself_fails(broker):
    told = Told()
    options = {"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 50}
    producer = KafkaProducer(options, interceptors=[told])
    with pytest.raises(KafkaTimeoutError, match="Partition 9 of topic t with partition count 1 is not present"):
        producer.send(ProducerRecord("t", b"v", partition=9))
    producer.close()
    with pytest.raises(ProducerClosedError):
        producer.send(ProducerRecord("t", b"v"))
    assert told.told == [(failed_on("t", 9), KafkaTimeoutError), (failed_on("t", -1), ProducerClosedError)]


JAVA = "org.apache.kafka.common.serialization"

ALL = (BytesSerializer, StringSerializer, IntegerSerializer, LongSerializer, DoubleSerializer, JsonSerializer,
       NullSerializer)  # fmt: skip


# What kafka-clients 4.1.1 serializes these to.
@pytest.mark.parametrize(
    ("serializer", "data", "stored"),
    [
        (BytesSerializer(), b"\0x", b"\0x"),
        (BytesSerializer(), bytearray(b"ab"), b"ab"),
        (BytesSerializer(), memoryview(b"ab"), b"ab"),
        (StringSerializer(), "日本", bytes.fromhex("e697a5e69cac")),
        (StringSerializer("utf-16-be"), "é", bytes.fromhex("00e9")),
        (IntegerSerializer(), 1, bytes.fromhex("00000001")),
        (IntegerSerializer(), -(2**31), bytes.fromhex("80000000")),
        (LongSerializer(), 2**63 - 1, bytes.fromhex("7fffffffffffffff")),
        (LongSerializer(), -2, bytes.fromhex("fffffffffffffffe")),
        (DoubleSerializer(), 1.5, bytes.fromhex("3ff8000000000000")),
        (DoubleSerializer(), -1, bytes.fromhex("bff0000000000000")),
        (JsonSerializer(), {"b": [1, None, "é"], "a": True}, '{"b":[1,null,"é"],"a":true}'.encode()),
    ],
)
def test_values_are_stored_as(serializer, data, stored):
    assert serializer.serialize("t", data) == stored


@pytest.mark.parametrize("kind", ALL)
def test_none_stays_null(kind):
    assert kind().serialize("t", None) is None


@pytest.mark.parametrize(
    ("serializer", "data", "said"),
    [
        (BytesSerializer(), "text", "BytesSerializer takes bytes, a bytearray or a memoryview, not the str 'text'"),
        (StringSerializer(), 5, "StringSerializer takes a str, not the int 5"),
        (StringSerializer(), "\ud800", "surrogates not allowed"),
        (StringSerializer("ascii"), "é", "'ascii' codec can't encode"),
        (IntegerSerializer(), 2**31, "takes an int from -2^31 to 2^31 - 1, not the int 2147483648"),
        (IntegerSerializer(), True, "IntegerSerializer takes an int, not the bool True"),
        (LongSerializer(), -(2**63) - 1, "takes an int from -2^63 to 2^63 - 1"),
        (LongSerializer(), 1.0, "LongSerializer takes an int, not the float 1.0"),
        (DoubleSerializer(), "1", "DoubleSerializer takes a float, not the str '1'"),
        (DoubleSerializer(), 10**400, "takes a number within the range of a double"),
        (JsonSerializer(), {1, 2}, "JsonSerializer cannot serialize a set"),
        (JsonSerializer(), float("nan"), "not JSON compliant"),
        (NullSerializer(), b"", "NullSerializer takes None, not the bytes b''"),
    ],
)
def test_what_a_serializer_does_not_take_is_a_clear_error(serializer, data, said):
    with pytest.raises(SerializationError) as caught:
        serializer.serialize("my-topic", data)
    assert said in str(caught.value)
    assert "topic my-topic" in str(caught.value)


def test_an_encoding_that_does_not_exist_is_refused_at_once():
    with pytest.raises(LookupError, match="no-such"):
        StringSerializer("no-such")


@pytest.fixture
def calls():
    CALLS.clear()
    return CALLS


@pytest.fixture(params=[KafkaProducer, SyncProducer])
def opened(request, broker):
    """Either producer, with these options."""

    def open_one(**options):
        names = {name.replace("_", "."): value for name, value in options.items()}
        return request.param({"bootstrap.servers": broker.bootstrap_servers, **names})

    return open_one


def test_serializers_are_named_as_python_classes_configured_and_closed(opened, broker, calls):
    with opened(key_serializer=f"{HERE}:Upper", value_serializer=f"{HERE}:Upper", linger_ms=7) as producer:
        producer.send(ProducerRecord("t", "value", "key"))
    (record,) = broker.topic("t").records()
    assert (record.key, record.value) == (b"KEY", b"VALUE")
    assert calls == [("configure", 7, True), ("configure", 7, False), ("close",), ("close",)]


@pytest.mark.parametrize("package", [f"{JAVA}.", ""])
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("StringSerializer", "ü", "ü".encode()),
        ("ByteArraySerializer", bytearray(b"value"), b"value"),
        ("IntegerSerializer", 1, b"\0\0\0\1"),
        ("LongSerializer", 1, b"\0\0\0\0\0\0\0\1"),
        ("DoubleSerializer", 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        ("VoidSerializer", None, None),
    ],
)
def test_kafkas_names_of_serializers_that_exist_here_were_refused(opened, broker, package, name, value, expected):
    with opened(value_serializer=f"{package}{name}") as producer:
        producer.send(ProducerRecord("t", value))
    assert broker.topic("t").values() == [expected]


def test_a_serializer_that_is_given_precedes_the_class_that_is_named(broker, calls):
    options = {"bootstrap.servers": broker.bootstrap_servers, "value.serializer": f"{HERE}:Upper"}
    with KafkaProducer(options, value_serializer=StringSerializer()) as producer:
        producer.send(ProducerRecord("t", "value"))
    assert broker.topic("t").values() == [b"value"]
    assert calls == []


def test_a_serializer_that_takes_headers_may_add_to_them(opened, broker, calls):
    given = [("h", b"1")]
    record = ProducerRecord("t", "value", "key", headers=given)
    with opened(key_serializer=f"{HERE}:Versioned", value_serializer=f"{HERE}:Versioned") as producer:
        producer.send(record)
    (stored,) = broker.topic("t").records()
    assert stored.headers == ((b"h", b"1"), (b"schema", b"1"), (b"schema", b"2"))
    assert calls == [("headers", given), ("headers", [*given, ("schema", b"1")])]
    assert record.headers == given


def test_an_invalid_header_of_a_serializer_fails_its_record_only(opened, broker):
    said = "invalid header in a record of topic t: A header's key must be a str, not 5"
    with opened(value_serializer=f"{HERE}:Careless") as producer, pytest.raises(SerializationError, match=said):
        producer.send(ProducerRecord("t", "v"))
    assert broker.topic("t").values() == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:X", "cannot be loaded: ModuleNotFoundError"),
        (f"{HERE}:NoSerializer", "has no method configure, serialize, close; inherit from Serializer"),
    ],
)
def test_a_serializer_that_cannot_be_loaded_is_a_config_error(opened, name, reason):
    with pytest.raises(ConfigError, match=f"value.serializer {name} {reason}"):
        opened(value_serializer=name)


def test_a_producer_whose_serializer_refuses_its_options_is_not_made_and_closes_the_others(opened, calls):
    with pytest.raises(ValueError, match="needs an option"):
        opened(key_serializer=f"{HERE}:Upper", value_serializer=f"{HERE}:Refusing")
    assert calls == [("configure", 5, True), ("close",)]


def test_a_serializer_that_fails_to_close_keeps_no_other_open(opened, calls):
    producer = opened(key_serializer=f"{HERE}:FailsToClose", value_serializer=f"{HERE}:Upper")
    with pytest.raises(OSError, match="no"):
        producer.close()
    assert calls == [("configure", 5, False), ("close",)]
    producer.close()


class Upper(Serializer):
    def configure(self, config, is_key):
        CALLS.append(("configure", config["linger.ms"], is_key))

    def serialize(self, topic, data):
        return data.upper().encode()

    def close(self):
        CALLS.append(("close",))


class Versioned(HeadersSerializer):
    """Notes its schema and the headers it saw."""

    def serialize(self, topic, data, headers):
        CALLS.append(("headers", list(headers)))
        headers.append(("schema", b"%d" % len(headers)))
        return data.encode()


class Careless(HeadersSerializer):
    def serialize(self, topic, data, headers):
        headers.append((5, b"no key"))
        return b""


class Refusing(Serializer):
    def configure(self, config, is_key):
        raise ValueError("needs an option")


class FailsToClose(Serializer):
    def serialize(self, topic, data):
        return data

    def close(self):
        raise OSError("no")


class NoSerializer:
    pass


class TagsItsClass(ProducerInterceptor):
    def configure(self, config):
        CALLS.append(("interceptor", config["linger.ms"]))

    def on_send(self, record):
        return ProducerRecord(record.topic, record.value + b"+class")

    def close(self):
        CALLS.append(("interceptor closed",))


@dataclass
class NoHashError(Exception):
    number: int = 3


@pytest.mark.parametrize("error", [SystemExit(3), NoHashError()], ids=["system exit", "no hash"])
def test_incident_a_partitioner_that_raised_system_exit_or_an_error_without_hash_ended_the_producer(
    broker, monkeypatch, error
):
    monkeypatch.setattr(Raises, "error", error)
    options = {"bootstrap.servers": broker.bootstrap_servers, "partitioner.class": f"{Raises.__module__}:Raises"}
    with KafkaProducer(options) as producer:
        for _ in range(2):
            assert repr(error) in repr(producer.send(ProducerRecord("t", b"v")).exception(DEADLINE_S))
