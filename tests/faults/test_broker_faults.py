"""Every fault of a ``TestBroker`` with every setting: what is in the log, and that nothing leaks."""

from __future__ import annotations

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.testing import TestBroker
from tests.faults.broker_faults import BROKER_FAULTS, PARTITIONS, TOPIC, BrokerFault
from tests.faults.leaks import nothing_leaks
from tests.faults.promises import Log, Lost, Promise, check
from tests.faults.settings import SETTINGS, Setting
from tests.faults.workload import Workload
from tests.support.waiting import eventually

ROWS = [
    pytest.param(fault, setting, promise, id=f"{fault}-{setting}")
    for fault in BROKER_FAULTS
    for setting in SETTINGS
    if (promise := fault.promise(setting.guarantee)) is not None
]


@pytest.mark.filterwarnings("ignore::spark_kafka_sink.common.config.producer_config.ConfigWarning")
@pytest.mark.parametrize(("fault", "setting", "promise"), ROWS)
def test_what_is_in_the_log(fault: BrokerFault, setting: Setting, promise: Promise) -> None:
    with nothing_leaks():
        run(fault, setting, promise)


def run(fault: BrokerFault, setting: Setting, promise: Promise) -> None:
    with TestBroker(nodes=3, config={"auto.create.topics.enable": False, "min.insync.replicas": 2}) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        config = {**setting.config(broker.bootstrap_servers), **fault.config}
        with KafkaProducer(config) as producer:
            workload = Workload(producer, TOPIC, setting)
            failed = workload.go_through(fault, broker, warm=not fault.cold)
        gone = frozenset(range(workload.before)) if fault.deletes_earlier_rows else frozenset[int]()
        if setting.acks == "0" and promise.lost is Lost.NOTHING:
            await_rows(broker, workload.written)
        log = read(broker)
        check(promise, log, workload.written, failed, gone)
        workload.check_offsets(log, gone)


def read(broker: TestBroker) -> Log:
    log: dict[int, list[int]] = {}
    for record in broker.topic(TOPIC).records():
        log.setdefault(record.partition, []).append(int(record.value or b""))
    return log


def await_rows(broker: TestBroker, count: int) -> None:
    """Without acks a producer is done before the broker is."""
    eventually(lambda: sum(map(len, read(broker).values())) >= count)
