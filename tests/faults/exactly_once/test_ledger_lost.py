"""The ledger's topic is deleted, made again, or never there: nobody goes on as if nothing had happened."""

import pytest

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import LedgerStart, RecoveryMode
from tests.faults.exactly_once.processes import LEDGER
from tests.faults.exactly_once.test_crashes import EACH_ONCE, MORE, ROWS

pytestmark = pytest.mark.jvm

LATER = [[b"g"], [b"h"]]
REFUSED = r"micro-batch 2 of query q1 .* has no entry in the ledger.*ledgerStart=trust-checkpoint:2"


@pytest.mark.slow
def test_a_query_whose_ledger_is_lost_is_refused_until_its_checkpoint_is_trusted(kafka, query):
    query.run(0, ROWS)
    query.run(1, MORE)
    kafka.delete_topic(LEDGER)
    plan = query.plan()
    with pytest.raises(ExactlyOnceError, match=REFUSED):
        query.tasks(plan, 2, LATER)
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}
    query.start_commit(query.tasks(query.plan(LedgerStart(RecoveryMode.CHECKPOINT, 2)), 2, LATER)).result()
    query.run(3, [[b"i"]])
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1, b"g": 1, b"h": 1, b"i": 1}


@pytest.mark.slow
def test_a_ledger_that_is_lost_with_a_batch_decided_stops_the_query(kafka, query):
    """Its rows are ended as decided; that they are, nothing tells the next run, which must not write them again."""
    query.options = {"delivery.timeout.ms": 5_000}
    for number, rows in enumerate((ROWS, MORE)):
        query.run(number, rows)
    reports = query.tasks(query.plan(), 2, LATER)
    query.fault.arm("intent committed", "stop")
    commit = query.start_commit(reports)
    query.fault.wait()
    kafka.delete_topic(LEDGER)
    query.fault.wake()
    assert LEDGER in commit.result().cleanup_failure, "every row is in: what is missing is the ledger's done record"
    plan = query.plan()
    with pytest.raises(ExactlyOnceError, match=REFUSED):
        query.tasks(plan, 2, LATER)
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1, b"g": 1, b"h": 1}
