"""The epochs of a producer id run out after 32,766: the coordinator goes on under another producer id."""

import pytest

from tests.faults.exactly_once.processes import KilledError
from tests.faults.exactly_once.test_crashes import EACH_ONCE, MORE, ROWS
from tests.faults.exactly_once.transaction_log import LAST_EPOCH, age

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture
def aged(kafka, query):
    """Of a query that has run batch 0: the ids with these suffixes have so many epochs left."""

    def make(left, *suffixes):
        plan = query.plan()
        reports = query.tasks(plan, 0, ROWS)
        query.start_commit(reports).result()
        ids = {f"{query.topic}-{task}": report.outcome.prepared.producer_id for task, report in enumerate(reports)}
        ids[f"{query.topic}-driver"] = plan.run.driver.identity.producer_id
        chosen = {f"{query.topic}-{suffix}" for suffix in suffixes}
        for name in chosen:
            age(kafka.bootstrap_servers, name, ids[name], LAST_EPOCH - left)
        kafka.stop(1)
        kafka.start(1)
        return ids

    return make


@pytest.mark.parametrize("left", range(4))
def test_producer_ids_that_are_used_up_are_followed_by_others(query, aged, left):
    before = aged(left, "driver", "0")
    identity = query.plan().run.driver.identity
    followed = identity.producer_id != before[identity.transactional_id]
    assert (followed, identity.epoch) == ((True, 0) if left == 0 else (False, LAST_EPOCH - left + 1))
    for number in (1, 2):
        query.run(number, [[b"e%d" % number], [b"f%d" % number]])
    plan = query.plan()
    reports = query.tasks(plan, 3, MORE)
    query.start_commit(reports).result()
    for identity in (plan.run.driver.identity, reports[0].outcome.prepared):
        assert identity.producer_id != before[identity.transactional_id]
    between = {b"%c%d" % (letter, number): 1 for letter in b"ef" for number in (1, 2)}
    assert query.committed() == {**EACH_ONCE, **between, b"e": 1, b"f": 1}


@pytest.mark.parametrize("left", range(3))
def test_a_batch_that_is_decided_as_ids_are_used_up_is_finished_by_the_next_run(query, aged, left):
    """The identity that the intent names is the last of its producer id; the finishing run holds another one."""
    aged(left, "driver", "0", "1")
    reports = query.tasks(query.plan(), 1, MORE)
    query.fault.arm("intent committed")
    with pytest.raises(KilledError):
        query.start_commit(reports).result()
    query.run(2, [[b"g"], [b"h"]])
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1, b"g": 1, b"h": 1}
