"""``make demo`` as a user runs it, and that it cannot say "all is well" when something is not."""

import os
import re
import sys
import threading
import uuid
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from examples.demo.check import Topics
from tests.support.child_processes import PYTHON_PATH, finished
from tests.support.waiting import DEADLINE_S

LIMIT_S = 290  # an idle machine needs a seventh of it

pytestmark = pytest.mark.jvm


def demo(tmp_path, *arguments):
    """Exit code and output; nothing it started may be alive when it has ended, no file of its own be left."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "MARK": mark, "TMPDIR": str(tmp_path), "COLUMNS": "100"}
    done = finished([sys.executable, "-m", "examples.demo", *arguments], LIMIT_S, env=environment)
    assert processes_with(mark) == []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("demo-", "local-kafka-"))] == []
    return done


def processes_with(mark):
    """Command lines of all processes that have inherited ``mark``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended meanwhile, or is somebody else's
            continue
    return found


@pytest.mark.timeout(LIMIT_S)
def test_every_flight_arrives_once_in_batch_and_streaming(tmp_path):
    code, shown = demo(tmp_path)
    assert code == 0, shown
    for kind in ("batch", "stream"):
        assert f"✓ flights-{kind}: each of 336,776 rows is there once, none twice," in shown
        assert re.search(rf"^flights-{kind}: .* rows/s", shown, re.MULTILINE), shown
    assert shown.count("334,264 keyed ones on the partition librdkafka's murmur2 chooses") == 2
    assert len(re.findall(r"^ +all +336,776 +2,512 +102,097,784 *$", shown, re.MULTILINE)) == 2, shown
    assert '{"year":2013,' in shown


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_a_record_that_comes_of_no_row_is_found_on_your_own_kafka(local_kafka, tmp_path):
    with one_record_added(local_kafka.bootstrap_servers, "mine-stream"):
        code, shown = demo(tmp_path, "--broker", local_kafka.bootstrap_servers, "--topics", "mine")
    assert code == 1, shown
    assert "✓ mine-batch: each of 336,776 rows is there once, none twice," in shown
    assert "✗ mine-stream: 1 record matches no row." in shown
    left = AdminClient({"bootstrap.servers": local_kafka.bootstrap_servers}).list_topics(timeout=DEADLINE_S).topics
    assert not [name for name in left if name.startswith("mine-")]


@contextmanager
def one_record_added(servers, topic):
    """Somebody writes to the topic as soon as it is there."""
    ended = threading.Event()

    def write():
        admin = AdminClient({"bootstrap.servers": servers})
        while topic not in admin.list_topics(timeout=DEADLINE_S).topics:
            if ended.wait(0.1):
                return
        producer = Producer({"bootstrap.servers": servers})
        producer.produce(topic, b"not a flight")
        producer.flush(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# What each way of going wrong looks like: rows as they should be, records as they are.
ROWS = Counter({(b"a", b"1"): 1, (b"b", b"2"): 1, (None, b"3"): 2})


@pytest.mark.parametrize(
    ("records", "faults"),
    [
        ([(b"a", b"1"), (b"b", b"2"), (None, b"3"), (None, b"3")], []),
        ([(b"a", b"1"), (None, b"3"), (None, b"3")], ["1 row is missing."]),
        ([(b"a", b"1"), (b"b", b"2"), (None, b"3")], ["1 row is missing."]),
        ([(b"a", b"1"), (b"b", b"2"), (b"b", b"2"), (None, b"3"), (None, b"3")], ["1 record is a duplicate."]),
        ([(None, b"1"), (b"b", b"2"), (None, b"3"), (None, b"3")], ["1 row is missing.", "1 record matches no row."]),
        ([], ["4 rows are missing."]),
    ],
)
def test_the_check_tells_missing_doubled_and_foreign_records_apart(local_kafka, records, faults):
    topics, name = Topics({"bootstrap.servers": local_kafka.bootstrap_servers}, 2), f"checked-{uuid.uuid4().hex}"
    with topics.created(name, f"{name}-keys", keep=False):
        places = topics.partitions_of(f"{name}-keys", [b"a", b"b"])
        producer = Producer({"bootstrap.servers": local_kafka.bootstrap_servers, "partitioner": "murmur2_random"})
        for key, value in records:
            producer.produce(name, value, key)
        producer.flush(30)
        read = []
        check = topics.check(name, ROWS, places, read.append)
        assert check.faults() == [f"{name}: {fault}" for fault in faults]
        assert sum(read) == check.records == len(records)
        elsewhere = {key: 1 - place for key, place in places.items()}
        assert topics.check(name, ROWS, elsewhere, read.append).misplaced == sum(key is not None for key, _ in records)
