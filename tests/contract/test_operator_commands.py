"""What an operator types at three in the morning, on real Kafkas: ``transactions list|commit|abort``, ``receipts``.

Under one prefix one batch is decided, one transaction is open and undecided; a third belongs to somebody whose prefix
only begins like it.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.tools.cli.main import main
from tests.contract.exactly_once.runs import LEDGER, Query
from tests.faults.exactly_once.reader import is_open, read_committed
from tests.support.kafka_versions import on_kafka

pytestmark = on_kafka("4.4.0", "3.9.1")

PATIENT = {"max.block.ms": 30_000, "request.timeout.ms": 10_000, "delivery.timeout.ms": 30_000}

_numbers = itertools.count(1)


class Night:
    """``decided``: two tasks' transactions whose intent is recorded, not committed yet; ``open``: one more of task 5,
    undecided; ``foreign``: under ``<prefix>-more``. Each with a topic of its own, named after it."""

    def __init__(self, kafka, stack):
        self.kafka = kafka
        self.prefix = f"night-{next(_numbers)}"
        for name in ("decided", "open", "foreign"):
            kafka.create_topic(self.topic(name))
        query = Query(kafka.bootstrap_servers, self.prefix, options=PATIENT, topic=self.topic("decided"))
        plan = query.plan()
        reports = query.tasks(plan, 0, [[b"a"], [b"b"]])
        undecided = Query(kafka.bootstrap_servers, self.prefix, options=PATIENT, topic=self.topic("open"))
        undecided.task(plan, 0, 5, [b"open"])
        query.commit_killed_at(reports)
        producer = stack.enter_context(self.producer(f"{self.prefix}-more-0"))
        producer.send(ProducerRecord(self.topic("foreign"), b"foreign"))
        producer.prepare_transaction()

    def producer(self, transactional_id):
        """With a transaction open."""
        config = {"bootstrap.servers": self.kafka.bootstrap_servers, "transactional.id": transactional_id}
        producer = KafkaProducer(config)
        producer.init_transactions()
        producer.begin_transaction()
        return producer

    def topic(self, name):
        return f"{self.prefix}-{name}"

    def is_open(self, name):
        return is_open(self.kafka.bootstrap_servers, self.topic(name))

    def committed(self, name):
        """Fails while a transaction is open."""
        return read_committed(self.kafka.bootstrap_servers, self.topic(name))[0]


@pytest.fixture
def night(local_kafka):
    with ExitStack() as stack:
        yield Night(local_kafka, stack)


@pytest.fixture
def command(night, capsys):
    """Runs ``transactions``; its exit code and what it printed."""

    def run(action, *more):
        arguments = ["--bootstrap-server", night.kafka.bootstrap_servers, "--prefix", night.prefix]
        yes = [] if action == "list" else ["--yes"]
        code = main(["transactions", action, *arguments, "--ledger-topic", LEDGER, *yes, *more])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_what_is_decided_is_listed_and_committed_and_what_is_open_is_aborted_after_it(night, command):
    """An abort is refused while the intent stands."""
    for _ in range(2):
        code, said = command("list")
        assert code == 0
        assert "q1: batch 0, intent, 2 tasks, 2 rows" in said
        lines = {line.split()[0]: line for line in said.splitlines()}
        for task in (0, 1):
            assert lines[f"{night.prefix}-{task}"].endswith("decided with batch 0 of q1: commit")
        assert lines[f"{night.prefix}-5"].endswith(
            "not decided: of a run that still writes, or of a dead one; abort would end it"
        )
        assert said.splitlines()[-1] == "3 transactions open"
        assert "more" not in said
    code, said = command("abort")
    assert code == 1
    assert f"Under the name {night.prefix} batch 0 of q1 is decided and not committed yet: commit it" in said
    assert all(night.is_open(name) for name in ("decided", "open", "foreign"))
    told = f"commit batch 0 of q1: {night.prefix}-0, {night.prefix}-1\n"
    assert command("commit") == (0, f"{told}committed batch 0 of q1\n")
    assert night.committed("decided") == [b"a", b"b"]
    assert night.is_open("open")
    assert command("commit") == (0, "nothing to commit\n")
    assert command("abort") == (0, f"abort {night.prefix}-5\naborted 1 transaction\n")
    assert [night.committed(name) for name in ("decided", "open")] == [[b"a", b"b"], []]
    assert night.is_open("foreign")
