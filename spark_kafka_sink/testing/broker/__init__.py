"""A Kafka cluster in this process, for tests: see ``TestBroker``.

From the socket inwards: ``acceptor`` and ``connection`` (frames), ``handler_pool`` (the request queue), ``apis/`` (one
file per API), ``state/`` (partitions, producers, transactions). ``faults`` is the script, ``purgatory`` holds delayed
responses, ``wire`` turns frames into kio's messages and back, ``apis/table.py`` lists the APIs. Everything but
``faults`` and ``request_log`` lives on the broker's one thread. ``emulation`` lists for the documentation what is
emulated.
"""

from spark_kafka_sink.testing.broker.authentication import Authentication, AuthenticationLog
from spark_kafka_sink.testing.broker.broker import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT, Fault, Faults
from spark_kafka_sink.testing.broker.request_log import RequestLog, SeenRequest
from spark_kafka_sink.testing.broker.topic_view import StoredRecord, TopicView
from spark_kafka_sink.testing.broker.wire import ReceivedRequest

__all__ = [
    "KEPT",
    "Authentication",
    "AuthenticationLog",
    "Fault",
    "Faults",
    "ReceivedRequest",
    "RequestLog",
    "SeenRequest",
    "StoredRecord",
    "TestBroker",
    "TopicView",
]
