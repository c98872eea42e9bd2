"""Names, texts and numbers that no request can carry are refused by the call that gives them."""

from datetime import datetime
from enum import Enum
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord, SyncProducer
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, InvalidRecordError, RecordTooLargeError, TransactionAbortableError
from spark_kafka_sink.producer.transaction_requests import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TransactionalIdentity,
)

SURROGATE = "caf\udce9"
TOO_LONG = "x" * 32_768
LARGEST = 2**63 - 1


def send(producer, topic):
    return producer.send(ProducerRecord(topic, b"v"))


def send_columns(producer, topic):
    return producer.send_columns(topic, value=[b"v"])


@pytest.mark.parametrize("use", [send, send_columns, KafkaProducer.partitions_for])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (SURROGATE, r"it has '\\udce9' at index 3, a lone surrogate that UTF-8 cannot encode"),
        (TOO_LONG, "it has 32768 bytes in UTF-8, more than the 32767 that Kafka allows"),
    ],
    ids=["surrogate", "too long"],
)
def test_incident_a_topic_that_no_request_can_carry_made_every_new_topic_time_out(broker, use, name, reason):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        with pytest.raises(InvalidRecordError, match=f"^Invalid topic .*: {reason}"):
            use(producer, name)
        producer.send(ProducerRecord("t", b"v")).result(120)
    assert broker.topic("t").values() == [b"v"]


@pytest.mark.parametrize("topic", [None, b"t", "", 5])
def test_incident_columns_for_a_topic_that_is_no_name_raised_an_attribute_error(broker, topic):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        with pytest.raises(InvalidRecordError, match="^Topic must be a non-empty str, not "):
            producer.send_columns(topic, value=[b"v"])
        producer.send_columns("t", value=[b"v"]).wait(120_000)
    assert broker.topic("t").values() == [b"v"]


GIB = pa.BinaryArray.from_buffers(
    pa.binary(), 1, [None, pa.py_buffer(np.array([0, 2**30], np.int32)), pa.py_buffer(np.zeros(2**30, np.uint8))]
)
"""Its memory is never touched."""


@pytest.mark.parametrize(
    ("columns", "message", "row"),
    [
        ({"key": ["caf\udce9"], "value": ["v"]}, "^key cannot be made .* surrogates not allowed", None),
        ({"key": ["a"], "value": ["1", "2"]}, "must be of one length", None),
        ({"partition": [1]}, "^Give at least one of key, value", None),
        ({"value": [1]}, "^value: cannot write a column of type int64 as bytes", None),
        ({"value": ["v", b"v"]}, "^value cannot be made .* types bytes and str", None),
        ({"value": ["v"], "headers": [[("a", b"x", 1)]]}, "^headers cannot be made .* a pair of key and value", None),
        ({"value": ["v"], "timestamp": [2**63]}, "^timestamp cannot be made .* 9223372036854775808 in row 0", None),
        ({"value": ["v"], "partition": [2**63]}, "^partition cannot be made .* 9223372036854775808 in row 0", None),
        ({"value": ["v"] * 2, "partition": [0, -3]}, "^Invalid partition: -3", 1),
        ({"value": ["v"] * 2, "partition": [0, 2**31]}, "^Invalid partition: 2147483648. .*at most", 1),
        ({"value": ["v"] * 2, "partition": np.array([0, 2**63], np.uint64)}, "^Invalid partition: 92233.*at most", 1),
        ({"value": pa.chunked_array([GIB, GIB])}, "^The columns cannot be sent in one call: offset overflow", None),
    ],
)
def test_a_column_that_cannot_be_sent_is_refused_by_its_name(broker, columns, message, row):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        with pytest.raises(InvalidRecordError, match=message) as caught:
            producer.send_columns("t", **columns)
        assert caught.value.row == row
        producer.send_columns("t", value=[b"v"], partition=[None], timestamp=[None]).wait(120_000)
    assert broker.topic("t").values() == [b"v"]


class Topic(str, Enum):  # noqa: UP042  as in older programs: its str() is another text
    T = "t"


NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    "timestamps",
    [
        [NOON],
        [None, pd.Timestamp(NOON)],
        pd.Series([NOON]),
        pa.array([NOON]),
        *(np.array([NOON], f"M8[{unit}]") for unit in ("s", "us", "ns")),
        np.ma.array(np.array([NOON], "M8[ns]"), mask=[False]),
        [np.datetime64(NOON, "us")],
    ],
    ids=range(9),
)
def test_incident_times_without_a_zone_counted_as_utc(broker, timestamps):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        with pytest.raises(InvalidRecordError, match=r'tz_localize\("UTC"\) .*epoch ms'):
            producer.send_columns("t", value=[b"v"] * len(timestamps), timestamp=timestamps)
        producer.send_columns("t", value=[b"v"], timestamp=pd.Series([NOON]).dt.tz_localize("UTC")).wait(120_000)
    assert [record.timestamp for record in broker.topic("t").records()] == [1_767_268_800_000]


@pytest.mark.parametrize("given", [NOON, np.datetime64(NOON, "ms"), np.timedelta64(5, "ns"), True, np.True_, "5", 1.0])
def test_what_is_no_number_is_no_timestamp(given):
    with pytest.raises(InvalidRecordError, match=r"^timestamp must be an int or None.*Epoch ms .*tz_localize"):
        ProducerRecord("t", b"v", timestamp=given)
    with pytest.raises(InvalidRecordError, match=r"^(timestamp cannot be made|cannot read record timestamps)"):
        KafkaProducer.send_columns(SimpleNamespace(_core=Mock()), "t", value=[b"v"], timestamp=[given])


class Whole:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


@pytest.mark.parametrize("whole", [np.int64, np.uint8, np.array, Whole])
def test_incident_whole_numbers_of_numpy_were_no_partition_and_no_timestamp(broker, whole):
    record = ProducerRecord("t", b"v", partition=whole(0), timestamp=whole(5))
    assert type(record.partition) is type(record.timestamp) is int
    changed = ProducerRecord("t", b"v")
    changed.partition, changed.timestamp = whole(0), whole(5)
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        futures = [producer.send(record), producer.send(changed)]
        producer.send_columns("t", value=[b"v"], partition=[whole(0)], timestamp=[whole(5)])
        sent = [future.result(120) for future in futures]
    assert [(each.partition, each.timestamp) for each in sent] == [(0, 5)] * 2
    assert [(record.partition, record.timestamp) for record in broker.topic("t").records()] == [(0, 5)] * 3


def test_incident_send_and_columns_took_different_topics_bytes_and_headers(broker):
    options, headers = {"bootstrap.servers": broker.bootstrap_servers}, [("a", np.bytes_(b"x")), ("b", None)]
    record = ProducerRecord(Topic.T, np.bytes_(b"v"), np.bytes_(b"k"), headers=headers)
    with KafkaProducer(options) as producer, SyncProducer(options) as sync:
        assert producer.send(record).result(120).topic == "t"
        producer.send_columns(Topic.T, key=[record.key], value=[record.value], headers=[headers]).wait(120_000)
        sync.send(record)
    assert broker.topic("t").values() == [b"v"] * 3
    assert [each.headers for each in broker.topic("t").records()] == [((b"a", b"x"), (b"b", None))] * 3


VIEWS = pa.array(["b", "a"], pa.string_view())
WORDS = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), VIEWS)
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int16()), pa.array([b"b", b"a", b"b"]))
HEADERS = pa.array([[{"key": "a", "value": "b"}]] * 3, pa.list_(pa.struct({"key": VIEWS.type, "value": VIEWS.type}), 1))


@pytest.mark.parametrize("value", [WORDS, pa.chunked_array([WORDS[:1], WORDS[1:]]), RUNS])
def test_incident_a_dictionary_of_views_was_not_implemented(broker, value):
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        partition = pa.array([0, None, 0]).dictionary_encode()
        producer.send_columns("t", key=value, value=value, headers=HEADERS, partition=partition).wait(120_000)
        with pytest.raises(InvalidRecordError, match="^key: run_end_encoded<.*string_view> cannot be encoded"):
            producer.send_columns("t", key=pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int16()), VIEWS))
    sent = [(record.key, record.value, record.headers) for record in broker.topic("t").records()]
    assert sent == [(word, word, ((b"a", b"b"),)) for word in (b"b", b"a", b"b")]


@pytest.fixture
def transactional(broker):
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx"}
    with KafkaProducer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord("t", b"v"))
        yield producer


@pytest.mark.parametrize(
    ("offsets", "group", "argument"),
    [
        ({("t", 0): 2**63}, "g", r"offsets of \('t', 0\): Invalid offset: it must be from"),
        ({("t", 0): 1.5}, "g", "Invalid offset: it must be an int, not float"),
        ({("t", 0): True}, "g", "Invalid offset: it must be an int, not bool"),
        ({("t", 2**31): 1}, "g", "Invalid partition of t in offsets"),
        ({("t", -1): 1}, "g", "Invalid partition of t in offsets"),
        ({(SURROGATE, 0): 1}, "g", "Invalid topic in offsets: it has"),
        ({("t", 0): 1}, SURROGATE, "Invalid group_id: it has"),
        ({("t", 0): 1}, None, "Invalid group_id: it must be a str, not NoneType"),
    ],
)
def test_incident_offsets_that_no_request_can_carry_left_the_transaction_ongoing(
    broker, transactional, offsets, group, argument
):
    with pytest.raises(ValueError, match=argument):
        transactional.send_offsets_to_transaction(offsets, group)
    transactional.commit_transaction()
    assert broker.topic("t").values() == [b"v"]


def test_offsets_at_the_limits_are_committed(broker, transactional):
    offset = OffsetAndMetadata(LARGEST, "naïve \U0001f600", 2**31 - 1)
    transactional.send_offsets_to_transaction({("t", 0): offset}, ConsumerGroupMetadata("gruppé"))
    transactional.commit_transaction()
    assert broker.committed("gruppé") == {("t", 0): LARGEST}


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: OffsetAndMetadata(2**63), "offset"),
        (lambda: OffsetAndMetadata(-1), "negative offset"),
        (lambda: OffsetAndMetadata(1, SURROGATE), "metadata"),
        (lambda: OffsetAndMetadata(1, TOO_LONG), "metadata"),
        (lambda: OffsetAndMetadata(1, "", 2**31), "leader_epoch"),
        (lambda: ConsumerGroupMetadata("g", 2**31), "generation_id"),
        (lambda: ConsumerGroupMetadata("g", 1, SURROGATE), "member_id"),
        (lambda: ConsumerGroupMetadata("g", 1, "m", SURROGATE), "group_instance_id"),
        (lambda: TransactionalIdentity(SURROGATE, 1, 0, 5), "transactional_id"),
        (lambda: TransactionalIdentity("tx", 2**63, 0, 5), "producer_id"),
        (lambda: TransactionalIdentity("tx", 1, 2**15, 5), "epoch"),
        (lambda: TransactionalIdentity("tx", 1, 0, None), "end_txn_version"),
        (lambda: PreparedTransaction("tx", 1, 0, "5"), "end_txn_version"),
    ],
)
def test_values_of_requests_name_the_field_that_is_wrong(make, argument):
    with pytest.raises(ValueError, match=f"^Invalid {argument}: "):
        make()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda producer: producer.init_transactions(transactional_id=SURROGATE), "transactional_id: it has"),
        (lambda producer: producer.init_transactions(transactional_id=""), "transactional_id: it is empty"),
        (lambda producer: producer.init_transactions(transactional_id=7), "transactional_id: it must be a str"),
        (lambda producer: producer.resume_transactions(TransactionalIdentity("tx", -1, 0, 5)), "identity.producer_"),
        (lambda producer: producer.resume_transactions(TransactionalIdentity("tx", 1, -1, 5)), "identity.epoch"),
    ],
)
def test_an_identity_that_no_request_can_carry_is_refused_and_the_producer_goes_on(broker, call, argument):
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx"}
    with KafkaProducer(config) as producer:
        with pytest.raises(ValueError, match=f"^Invalid {argument}"):
            call(producer)
        producer.init_transactions()


@pytest.mark.parametrize("option", ["client.id", "transactional.id"])
@pytest.mark.parametrize(("text", "reason"), [(SURROGATE, "lone surrogate"), (TOO_LONG, "32768 bytes in UTF-8")])
def test_ids_that_no_request_can_carry_are_refused_with_the_option(option, text, reason):
    with pytest.raises(ConfigError, match=f"^{option} has .*{reason}"):
        ProducerConfig.parse({"bootstrap.servers": "b:9092", option: text})


def test_a_transactional_id_of_the_longest_length_had_a_client_id_that_no_request_could_carry(broker):
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x" * (2**15 - 1)}
    with KafkaProducer(config) as producer:
        producer.init_transactions()
        assert producer.config.client_id.startswith("producer-")


@pytest.mark.parametrize("changed", [{"headers": [("\udce9", b"")]}, {"partition": -1}], ids=min)
def test_a_record_that_is_refused_cost_its_neighbours_their_transaction(broker, transactional, changed):
    transactional.send(ProducerRecord("t", b"1"))
    record = ProducerRecord("t", b"bad")
    for name, value in changed.items():
        setattr(record, name, value)
    with pytest.raises(InvalidRecordError):
        transactional.send(record)
    with pytest.raises(InvalidRecordError):
        transactional.send_columns("t", value=[b"bad"], partition=[-1])
    transactional.send(ProducerRecord("t", b"2"))
    transactional.commit_transaction()
    assert broker.topic("t").values()[1:] == [b"1", b"2"]


def test_a_record_that_is_too_large_still_costs_its_transaction(transactional):
    with pytest.raises(RecordTooLargeError):
        transactional.send(ProducerRecord("t", bytes(2 << 20)))
    with pytest.raises(TransactionAbortableError):
        transactional.commit_transaction()
    transactional.abort_transaction()
