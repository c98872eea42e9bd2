"""What writes of different names share, by the options that name them: ``tests/model`` assumes that it is nothing but
the ledger, the topic and the cluster's list of transactions."""

import re
from itertools import permutations

import pytest

from spark_kafka_sink.exactly_once import sweep
from spark_kafka_sink.exactly_once.ledger_format import RecordKey
from spark_kafka_sink.exactly_once.values import driver_id, task_id
from spark_kafka_sink.spark.exactly_once import _settings
from spark_kafka_sink.spark.options import SinkOptions

STREAMS = [
    {"transactionalIdPrefix": prefix} for prefix in ("a", "a-1", "a-1-0", "a-b", "a-driver", "a.1", "txn", "txn-a")
]
VERSIONS = [
    {"txnAppId": app, "txnVersion": "1", **({} if prefix is None else {"transactionalIdPrefix": prefix})}
    for app in ("b", "1", "1.2", "a-b", "0-driver")
    for prefix in (None, "a", "a-1", "txn")
]


class Write:
    def __init__(self, own):
        options = {"kafka.bootstrap.servers": "b:1", "topic": "t", "deliveryGuarantee": "exactly-once", **own}
        self.settings = _settings(SinkOptions.parse(options))
        self.query = own.get("txnAppId") or self.settings.name
        self.ids = {task_id(self.settings.prefix, task) for task in (0, 1, 10)}
        self.keys = {RecordKey(self.settings.name, *rest).to_bytes() for rest in ((), (self.query,), (self.query, 0))}

    @property
    def names(self):
        return self.settings.name, self.settings.prefix


@pytest.fixture(scope="module")
def pairs():
    """Every two writes whose names differ."""
    writes = [Write(own) for own in (*STREAMS, *VERSIONS)]
    return [(one, other) for one, other in permutations(writes, 2) if one.settings.name != other.settings.name]


def test_no_two_names_share_a_driver_or_a_record_of_the_ledger(pairs):
    for one, other in pairs:
        assert driver_id(one.settings.name) != driver_id(other.settings.name)
        assert driver_id(one.settings.name) not in other.ids
        assert not one.keys & other.keys


def listed_by(write, monkeypatch):
    """What the write picks from the cluster's list."""
    patterns = []
    monkeypatch.setattr(sweep, "list_matching", lambda cluster, pattern, deadline: patterns.append(pattern) or [])

    class Session:
        settings, cluster = write.settings, None

    sweep.list_open(Session, 0.0)
    (pattern,) = patterns
    return lambda ids: {each for each in ids if re.fullmatch(pattern, each)}


def test_a_write_picks_its_own_transactions_and_no_neighbours(pairs, monkeypatch):
    for one, other in pairs:
        own = listed_by(one, monkeypatch)
        assert own(one.ids) == one.ids
        assert own(other.ids) == (other.ids if one.settings.prefix == other.settings.prefix else set())
        assert not own({driver_id(one.settings.name), driver_id(other.settings.name)})


def test_a_limit_two_names_have_the_same_ids_where_a_prefix_and_an_application_join_to_another_name(pairs):
    """``tests/model/test_safeguards.py`` has what comes of it; ``test_shared_ids.py``: it is refused."""
    same = {(one.names, other.names) for one, other in pairs if one.ids & other.ids}
    assert same == {
        (("a-b", "a-b"), ("txn-b", "a-b")),
        (("txn-b", "a-b"), ("a-b", "a-b")),
        (("a-1", "a-1"), ("txn-1", "a-1")),
        (("txn-1", "a-1"), ("a-1", "a-1")),
    }
