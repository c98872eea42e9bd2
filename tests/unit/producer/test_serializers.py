import pytest

from spark_kafka_sink.errors import SerializationError
from spark_kafka_sink.producer.serializers import (
    BytesSerializer,
    DoubleSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    NullSerializer,
    Serializer,
    StringSerializer,
)

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


def test_a_long_value_does_not_fill_the_error():
    with pytest.raises(SerializationError) as caught:
        BytesSerializer().serialize("t", "x" * 10_000)
    assert len(str(caught.value)) < 250


def test_an_encoding_that_does_not_exist_is_refused_at_once():
    with pytest.raises(LookupError, match="no-such"):
        StringSerializer("no-such")


def test_a_serializer_of_ones_own_needs_no_more_than_serialize():
    class Upper(Serializer):
        def serialize(self, topic, data):
            return data.upper().encode()

    upper = Upper()
    upper.configure({"client.id": "c"}, is_key=True)
    assert upper.serialize("t", "a") == b"A"
    upper.close()
