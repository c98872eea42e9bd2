"""``send``: what is checked, what futures and callbacks report, and when records are appended."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import InvalidRecordError, ProducerClosedError, RecordTooLargeError
from spark_kafka_sink.producer.record import ProducerRecord, RecordMetadata
from tests.support.waiting import DEADLINE_S
from tests.unit.scripted_engine import TOPIC, Engine, Step


def send(engine: Engine, value=b"v", key=None, **fields):
    return engine.parts.records.put(ProducerRecord("t", value, key, **fields), key, value)


@pytest.fixture
def engine() -> Engine:
    return Engine(partitions=3, linger_ms=5).connect()


def test_records_with_and_without_keys_keep_their_keys_in_any_order(engine):
    keys = [b"a", b"b", None, None, b"c", b"d", None, b"e", b"f", b"g"]
    futures = [send(engine, key or b"no key", key, partition=0) for key in keys]
    engine.settle()
    assert [(each.key, each.value) for each in engine.logs[0].records] == [(key, key or b"no key") for key in keys]
    assert [future.result(0).serialized_key_size for future in futures] == [-1 if key is None else 1 for key in keys]


def test_a_record_lingers_once_not_while_it_is_pending_and_again_in_its_batch(engine):
    future = send(engine)
    engine.turn()
    engine.spin(4)
    assert not future.done()
    assert engine.wake_at <= 5
    engine.spin(1)
    assert future.done()


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_incident_a_record_larger_than_buffer_memory_overdrew_it(codec):
    engine = Engine(max_request_size=1_000_000, buffer_memory=100_000, compression_type=codec).connect()
    pool = engine.parts.accumulator.pool
    for size in (99_910, 99_990, 100_001, 999_000):
        if size > 99_918:
            with pytest.raises(RecordTooLargeError, match=r"larger than 100000.* buffer\.memory"):
                send(engine, os.urandom(size))
        else:
            send(engine, os.urandom(size))
            engine.turn()
            assert 0 <= pool.available < 100
        engine.settle()
        assert engine.memory_is_free()


def test_callbacks_run_in_order_and_one_that_raises_harms_nothing(engine):
    told: list[int] = []

    def callback(number):
        def call(metadata, error):
            told.append(number)
            raise RuntimeError("the user's own")

        return call

    for number in range(10):
        send(engine, partition=0).add_callback(callback(number))
    engine.settle()
    assert told == list(range(10))


def test_a_callback_of_a_failed_record_gets_the_error(engine):
    told = []
    engine.steps.append(Step(before={0: ErrorCode.invalid_record}))
    send(engine, partition=0).add_callback(lambda metadata, error: told.append((metadata, error.name)))
    engine.settle()
    assert told == [(None, "INVALID_RECORD")]


def test_futures_can_be_awaited(engine):
    futures = [send(engine) for _ in range(2)]
    engine.settle()

    async def both():
        return await asyncio.gather(*futures)

    assert [type(metadata) for metadata in asyncio.run(both())] == [RecordMetadata] * 2


@pytest.mark.parametrize("wait", [concurrent.futures.wait, lambda futures: [*concurrent.futures.as_completed(futures)]])
def test_concurrent_futures_refuses_them_and_releases_those_of_others(engine, wait):
    others = [concurrent.futures.Future() for _ in range(8)]
    with pytest.raises(TypeError, match="cannot wait for the future of a record: call result"):
        wait([send(engine), *others])
    with concurrent.futures.ThreadPoolExecutor(1) as another_thread:
        another_thread.submit(lambda: [each.set_result(None) for each in others]).result(DEADLINE_S)


def test_incident_an_await_that_was_cancelled_before_its_loop_ended_was_logged_as_a_failed_callback(engine, caplog):
    async def give_up():
        await asyncio.wait_for(send(engine), 0.001)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(give_up())
    engine.settle()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"topic": ""}, "Topic must be a non-empty str"),
        ({"topic": None}, "Topic must be a non-empty str"),
        ({"partition": -1}, "Invalid partition: -1. Partition number should always be non-negative or null."),
        ({"partition": "1"}, "partition must be an int or None, not '1'"),
        ({"partition": 2**31}, "Invalid partition: 2147483648. Partition number should be at most 2147483647."),
        (
            {"timestamp": 2**63},
            "Invalid timestamp: 9223372036854775808. Timestamp should be at most 9223372036854775807.",
        ),
        ({"timestamp": -5}, "Invalid timestamp: -5. Timestamp should always be non-negative or null."),
        ({"timestamp": 1.5}, "timestamp must be an int or None, not 1.5"),
        ({"headers": [(b"k", b"v")]}, "A header's key must be a str"),
        ({"headers": [("k", "v")]}, "The value of header 'k' must be bytes or None, not 'v'"),
        ({"headers": [("k",)]}, "headers must be pairs"),
        (
            {"headers": {"ab": b"v"}},
            "headers must be a list of pairs, not a dict",
        ),  # of "a" with the value "b", it said
    ],
)
def test_what_can_never_be_sent_is_refused_at_construction(fields, text):
    with pytest.raises(InvalidRecordError) as caught:
        ProducerRecord(**{"topic": "t", **fields})
    assert text in str(caught.value)


GOOD = 200
BAD = {
    "a surrogate in a header's key": ({"headers": [("caf\udce9", b"v")]}, {}, "must be valid Unicode: 'caf.udce9'"),
    "a header's value": (
        {"headers": [("k", b"v")]}, {"headers": [("k", memoryview(b"12345678").cast("I"))]}, "must be bytes or None",
    ),
    "a late timestamp": ({}, {"timestamp": 2**63}, "Invalid timestamp: 9223372036854775808"),
    "a negative partition": ({}, {"partition": -2}, "Invalid partition: -2"),
    "a value": ({}, {"value": bytearray(b"v")}, "The value must be bytes or None, not bytearray"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", ["values only", "keyed", "with headers"])
def test_incident_one_bad_record_failed_the_200_good_ones_beside_it(engine, kind, bad):
    """Its fields may have been changed since it was made: only ``send`` sees what is sent."""
    fields = {"values only": {}, "keyed": {"key": b"k"}, "with headers": {"headers": [("h", b"x")]}}[kind]
    made, changed, text = BAD[bad]
    record = ProducerRecord("t", **{"value": b"bad", **made})
    for name, value in changed.items():
        setattr(record, name, value)
    futures = [send(engine, b"%d" % number, **fields) for number in range(GOOD // 2)]
    with pytest.raises(InvalidRecordError, match=text):
        engine.parts.records.put(record, record.key, record.value)
    futures += [send(engine, b"%d" % number, **fields) for number in range(GOOD // 2, GOOD)]
    engine.settle()
    assert [type(future.result(0)) for future in futures] == [RecordMetadata] * GOOD
    assert b"bad" not in [value for log in engine.logs.values() for value in log.values]
    assert engine.memory_is_free()


def test_the_latest_timestamp_and_the_earliest_go_into_one_batch_with_records_of_now(engine):
    records = [send(engine, partition=0, timestamp=at) for at in (0, 2**63 - 1, None, 1)]
    engine.settle()
    times = [future.result(0).timestamp for future in records]
    assert times == [0, 2**63 - 1, times[2], 1]


def test_headers_are_those_that_the_record_had_when_it_was_sent(engine):
    record = ProducerRecord("t", b"v", partition=0, headers=[("before", b"1")])
    engine.parts.records.put(record, None, b"v")
    record.headers.append(("after", 2))
    engine.settle()
    assert [list(each.headers) for each in engine.logs[0].records] == [[(b"before", b"1")]]


def test_a_record_beyond_two_gib_is_too_large_and_no_error_of_a_column(engine):
    huge = bytes(2**31)  # its pages are never touched
    before = send(engine)
    text = r"^The message is 2147483\d{3} bytes when serialized which is larger than 1048576, which is the value of "
    with pytest.raises(RecordTooLargeError, match=text):
        send(engine, huge)
    engine.settle()
    assert before.done()


def test_a_record_whose_memory_was_granted_just_before_an_abort_is_refused(engine, monkeypatch):
    """No thread was left to take the record: its future never completed, the memory was lost."""
    pool = engine.parts.pool
    take = pool.take

    def take_and_be_aborted(*arguments):
        granted = take(*arguments)
        engine.parts.sender.abort(ProducerClosedError("closed"))
        return granted

    monkeypatch.setattr(pool, "take", take_and_be_aborted)
    with pytest.raises(ProducerClosedError, match="closed"):
        send(engine).result(DEADLINE_S)
    assert engine.memory_is_free()


def test_memory_that_was_waited_for_while_another_thread_took_some_is_given_back(engine, monkeypatch):
    pool = engine.parts.pool
    take = pool.take
    others = []

    def take_and_be_overtaken(*arguments):
        granted = take(*arguments)
        if not others:
            others.append(None)
            thread = threading.Thread(target=lambda: others.append(send(engine, b"theirs")))
            thread.start()
            thread.join(DEADLINE_S)
        return granted

    monkeypatch.setattr(pool, "take", take_and_be_overtaken)
    ours = send(engine, b"ours")
    engine.settle()
    assert [engine.values(m.partition)[m.offset] for m in (ours.result(0), others[1].result(0))] == [b"ours", b"theirs"]
    assert engine.memory_is_free()


# A record without a timestamp has the time of its ``send``, in the log and in its metadata.

KINDS: dict[str, dict[str, Any]] = {
    "values only": {},
    "keyed": {"key": b"k"},
    "with headers": {"headers": [("h", b"x")]},
    "null": {"value": None, "key": b"k"},
    "partition": {"partition": 0},
}


class Times:
    """Sends records and compares their timestamps in the log with when they were sent."""

    def __init__(self, **config: object) -> None:
        self.engine = engine = Engine(**{"linger_ms": 1_000, **config})
        engine.connect()
        self.log = engine.logs[0]
        self.expected: list[int] = []
        self.futures: list[Any] = []

    def append(self, value: bytes | None = b"v", timestamp: int | None = None, **fields: Any) -> None:
        self.expected.append(self.engine.clock.epoch_ms() if timestamp is None else timestamp)
        record = ProducerRecord(TOPIC, value, timestamp=timestamp, **fields)
        self.futures.append(self.engine.parts.records.put(record, record.key, record.value))

    def check(self) -> None:
        self.engine.settle()
        assert [record.timestamp for record in self.log.records] == self.expected
        for future, expected in zip(self.futures, self.expected, strict=True):
            assert future is None or future.result(0).timestamp == expected
        for batch in self.log.batches:
            times = [record.timestamp for record in batch.records]
            assert (batch.header.base_timestamp, batch.header.max_timestamp) == (times[0], max(times))
        assert self.engine.memory_is_free()


@pytest.mark.parametrize("kind", KINDS)
def test_incident_records_of_one_buffer_all_had_the_time_of_its_first(kind):
    times = Times()
    for wait in (0, 0, 3, 0, 400, 1, 0, 90):
        times.engine.clock.advance(wait)
        times.append(**KINDS[kind])
    times.check()


@pytest.mark.parametrize("same_size", [True, False])
@pytest.mark.parametrize("batch_size", [200, 1_000, 100_000])
@pytest.mark.parametrize("every", [1, 7, 60])
def test_times_are_those_of_each_record_where_a_buffer_becomes_many_batches(same_size, batch_size, every):
    times = Times(batch_size=batch_size)
    random = Random(every)
    for number in range(300):
        if number % every == 0:
            times.engine.clock.advance(random.randrange(3))
        times.append(b"x" * (20 if same_size else random.randrange(40)))
    times.check()


def test_kinds_of_records_and_given_timestamps_mix():
    times = Times()
    for number, kind in enumerate([*KINDS] * 8):
        times.engine.clock.advance(number % 3)
        times.append(timestamp=None if number % 4 else 5 * number, **KINDS[kind])
    times.check()


@pytest.mark.parametrize("key", [None, b"k"])
def test_records_and_small_calls_join_an_open_batch_of_earlier_ones(key):
    """Their times are bounded as those of columns are: a narrower bound would end the batch."""
    times = Times(linger_ms=10_000)
    for _ in range(5):
        for _ in range(3):
            times.engine.clock.advance(1)
            times.append(key=key)
        times.expected.append(times.engine.clock.epoch_ms())
        times.futures.append(None)
        times.engine.append([b"v"])
        times.engine.turn()
        times.engine.clock.advance(100)
    times.check()
    assert len(times.log.batches) == 1
