"""A query's runs against a broker, without Spark: plan, tasks, commit or abort, each as in a process of its own."""

import pickle
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_IDENTITY
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.abort import abort_batch
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.committer import CONNECTIONS, Committer
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import CommitSettings, close_sessions
from spark_kafka_sink.exactly_once.task import Lease, TaskTransaction, opened
from spark_kafka_sink.exactly_once.values import STRICT, LedgerStart, Target, TaskAttempt, WriteId, WriteKind
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.producer.transaction_requests import END_TXN_V1, TransactionalIdentity
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.support.kill_points import parted

TOPIC = "out"
LEDGER = "__ledger"


def new_process() -> None:
    """Forget what this process has kept, as another process would not know it."""
    close_sessions()


def carried(value):
    """What crosses processes is pickled."""
    return pickle.loads(pickle.dumps(value))


class Killed(BaseException):
    """The process was killed."""


@dataclass
class Query:
    servers: str
    name: str = "app"
    query: str = "q1"
    kind: WriteKind = WriteKind.MICRO_BATCH
    options: dict = field(default_factory=dict)
    ledger_start: LedgerStart = STRICT
    lease: Lease = opened
    topic: str = TOPIC
    ledger: str = LEDGER
    query_name: str = ""
    told_id: bool = False
    """Whether planning knows the query's id."""

    @property
    def settings(self) -> CommitSettings:
        options = {
            "bootstrap.servers": self.servers,
            "linger.ms": 0,
            "max.block.ms": 120_000,
            "request.timeout.ms": 5000,
            "delivery.timeout.ms": 120_000,
        }
        producer = ProducerConfig.parse({**options, **self.options})
        return CommitSettings(producer, self.name, self.ledger, self.query_name)

    def write_id(self, number: int) -> WriteId:
        return WriteId(self.query, number, self.kind, Target(self.topic))

    def plan(self, number=0):
        new_process()
        write_id = None if self.kind is WriteKind.MICRO_BATCH else self.write_id(number)
        query = self.query if self.told_id else None
        return carried(plan_write(self.settings, write_id, self.ledger_start, query, Target(self.topic)))

    def open_task(self, plan, number, task, retried=False) -> TaskTransaction:
        name = TaskAttempt(self.write_id(number), task, retried)
        return TaskTransaction(self.settings.producer, plan, name, SystemClock(), self.lease)

    def append(self, write, values) -> None:
        write.append(self.topic, RecordColumns(value=pa.array(values, pa.binary())), None)

    def task(self, plan, number, task, values, retried=False):
        """One task's write; its report."""
        with self.open_task(plan, number, task, retried) as write:
            if values:
                self.append(write, values)
            return carried(write.prepare())

    def tasks(self, plan, number, rows):
        return [self.task(plan, number, task, values) for task, values in enumerate(rows)]

    def commit(self, reports, meanwhile=None, at="intent committed"):
        """``meanwhile``: what happens when commit has come to this step."""
        new_process()
        with pytest.MonkeyPatch.context() as patch:
            if meanwhile is not None:
                patch.setattr(failpoints, "hit", lambda step, task=None: meanwhile() if step == at else None)
            return commit_batch(self.settings, reports)

    def commit_killed_at(self, reports, point="intent committed") -> None:
        """The commit ends at ``point`` as if its process were killed there."""

        def reach(name, task=None):
            if name == point:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failpoints, "hit", reach)
            patch.setattr(Committer, "end", parted(Committer.end, lambda name: name == point, reach))
            with pytest.raises(Killed):
                self.commit(reports)

    def abort(self, reports, plan=None):
        """``plan``: the pickled writer of a batch job has it."""
        new_process()
        return abort_batch(self.settings, reports, plan)

    def run(self, number, rows):
        """A whole batch; ``rows``: each task's values."""
        return self.commit(self.tasks(self.plan(number), number, rows))


def committed(broker) -> Counter:
    """What a read_committed reader sees of the topic."""
    return Counter(record.value for record in broker.topic(TOPIC).records(read_committed=True))


def end_transactions(config, endings, timeout_ms):
    """EndTxn of prepared transactions, each with whether it is committed, from another process; their outcomes."""
    parsed = config if isinstance(config, ProducerConfig) else ProducerConfig.parse(config)
    with closing(Rpc(parsed, SystemClock(), connections=CONNECTIONS)) as rpc:
        return Committer(rpc, parsed.transaction_timeout_ms).end(endings, timeout_ms)


def fence(
    config: Mapping[str, object],
    transactional_id: str,
    timeout_ms: float = 60_000,
    held: TransactionalIdentity | None = None,
) -> TransactionalIdentity:
    """InitProducerId from another process: what fences a producer."""
    parsed = ProducerConfig.parse(config)
    with closing(Rpc(parsed, SystemClock(), connections=CONNECTIONS)) as rpc:
        committer = Committer(rpc, parsed.transaction_timeout_ms)
        unknown = TransactionalIdentity(transactional_id, *NO_IDENTITY, END_TXN_V1)
        return committer.init_producer_id(held or unknown, timeout_ms)
