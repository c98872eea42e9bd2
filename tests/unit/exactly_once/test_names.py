"""What writes of different names share: ``tests/model`` assumes that it is nothing but the ledger, the topic and the
cluster's list of transactions."""

from itertools import permutations

import pytest

from spark_kafka_sink.exactly_once import sweep
from spark_kafka_sink.exactly_once.ledger_format import RecordKey
from spark_kafka_sink.exactly_once.values import driver_id, name_of_driver, name_of_task, task_id
from spark_kafka_sink.spark.exactly_once import _settings
from spark_kafka_sink.spark.options import SinkOptions

NAMES = ("x", "x-3", "x-3-7", "x-driver", "x-driver-3", "x-", "x--3", "x-3-driver", "x.3", "x-b", "3", "-", "driver")


def ids(name):
    return {driver_id(name), *(task_id(name, task) for task in (0, 3, 7, 10))}


def settings(**named):
    options = {"kafka.bootstrap.servers": "b:1", "topic": "t", "deliveryGuarantee": "exactly-once", **named}
    return _settings(SinkOptions.parse(options))


def test_a_query_is_named_by_its_prefix_and_a_batch_write_by_its_txn_app_id():
    assert settings(transactionalIdPrefix="x-3").name == settings(txnAppId="x-3", txnVersion="1").name == "x-3"


def test_no_two_names_share_a_transactional_id_or_a_record_of_the_ledger():
    for one, other in permutations(NAMES, 2):
        assert not ids(one) & ids(other), (one, other)
        keys = [{RecordKey(name, *rest).to_bytes() for rest in ((), ("q",), ("q", 3))} for name in (one, other)]
        assert not keys[0] & keys[1]


def test_each_id_tells_its_name():
    for name in NAMES:
        assert (name_of_driver(driver_id(name)), name_of_task(driver_id(name))) == (name, None)
        assert (name_of_task(task_id(name, 3)), name_of_driver(task_id(name, 3))) == (name, None)


@pytest.mark.parametrize("transactional_id", ["x", "x-", "x-3a", "x-\u0663", "x-3 ", "x-3\n", "\x1b-3", "-3"])
def test_an_id_that_no_task_has_is_nobodys(transactional_id):
    assert name_of_task(transactional_id) is None


def test_a_write_picks_its_own_transactions_and_no_neighbours(monkeypatch):
    every = [transactional_id for name in NAMES for transactional_id in ids(name)]
    monkeypatch.setattr(sweep, "list_matching", lambda cluster, is_wanted, deadline: filter(is_wanted, every))
    for name in NAMES:

        class Session:
            settings, cluster = settings(transactionalIdPrefix=name), None

        assert set(sweep.list_open(Session, 0.0)) == ids(name) - {driver_id(name)}
