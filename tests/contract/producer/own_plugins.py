"""Serializers and interceptors as users write them, for ``module:Class`` options."""

from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.producer.serializers import HeadersSerializer, Serializer

CALLS: list[tuple] = []
"""What was called; a test clears it."""


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


class Tagging(ProducerInterceptor):
    def configure(self, config):
        CALLS.append(("interceptor", config["linger.ms"]))

    def on_send(self, record):
        return ProducerRecord(record.topic, record.value + b"+class")

    def close(self):
        CALLS.append(("interceptor closed",))
