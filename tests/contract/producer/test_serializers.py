import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord, SyncProducer
from spark_kafka_sink.errors import ConfigError, SerializationError
from spark_kafka_sink.producer.serializers import (
    BytesSerializer,
    DoubleSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    NullSerializer,
    StringSerializer,
)
from tests.contract.producer import own_plugins

HERE = "tests.contract.producer.own_plugins"
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
    own_plugins.CALLS.clear()
    return own_plugins.CALLS


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
    said = "invalid header, topic t: A header's key must be a str, not 5"
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
