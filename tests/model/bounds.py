"""The explorations by name. SMALL ones are part of `make test`, LARGE ones of `make model`."""

from __future__ import annotations

from dataclasses import replace

from tests.model.scenario import Plan, Replaces, Scenario, Trust

STREAM, OTHER, HEIR = Plan(), Plan(query=1), Plan(query=1, cut="one task", replaces=Replaces(0))
BACK = Plan(cut="one task", replaces=Replaces(1))
SWAPPED, ONE_TASK, ONE_EMPTY = Plan(cut="swapped"), Plan(cut="one task"), Plan(cut="one empty")
LONGER, NOTHING = Plan(cut="longer"), Plan(cut="nothing")
JOB = Plan(query=1, write=1, kind="versions", cut="one task")
FIRST_ONLY, AT_LEAST_ONCE = Plan(cut="one task", until=0), Plan(cut="one task", at_least_once=True)

SMALL: dict[str, Scenario] = {
    "one task, aborts": Scenario(runs=(ONE_TASK, ONE_TASK), timeouts=1),
    "two runs, two batches": Scenario(batches=2, aborts=False, timeouts=1),
    "two runs, a timeout, a lost answer": Scenario(aborts=False, timeouts=1, lost_answers=1),
    "one task, three runs": Scenario(runs=(ONE_TASK,) * 3, aborts=False, timeouts=1),
    "ends that arrive late": Scenario(runs=(ONE_TASK,) * 2, batches=2, late_ends=1, crashes=1, aborts=False),
    "ends that arrive late, aborts": Scenario(runs=(ONE_TASK,) * 2, late_ends=1),
    "ends that arrive late, transactions v1": Scenario(
        runs=(ONE_TASK,) * 2, protocol="v1", mid_write=True, late_ends=1, aborts=False
    ),
    "reads that lag": Scenario(runs=(ONE_TASK,) * 2, stale_reads=1),
    "reads that lag, two batches": Scenario(runs=(ONE_TASK,) * 2, batches=2, stale_reads=1, aborts=False),
    "reads that lag, a zombie attempt": Scenario(
        orderly=True, crashes=1, retries=1, late_inits=1, stale_reads=1, aborts=False
    ),
    "a task that fails": Scenario(runs=(ONE_TASK,), failures=1, mid_write=True, tidy=True, aborts=False),
    "killed in mid-write": Scenario(batches=2, orderly=True, crashes=1, mid_write=True, aborts=False),
    "a query stopped in mid-write": Scenario(runs=(ONE_TASK,), batches=2, mid_write=True, retries=1),
    "transactions v1": Scenario(runs=(ONE_TASK,) * 2, protocol="v1", mid_write=True, lost_answers=1),
    "before Kafka 3.6, rows that arrive late": Scenario(
        runs=(ONE_TASK,) * 2, batches=2, protocol="unverified", mid_write=True, late_rows=1, aborts=False
    ),
    "before Kafka 3.6, an abort": Scenario(runs=(ONE_TASK,) * 2, protocol="unverified", mid_write=True, late_rows=1),
    "a task retried": Scenario(runs=(STREAM,), retries=1, timeouts=1),
    "a zombie attempt": Scenario(orderly=True, crashes=1, retries=1, late_inits=1, aborts=False),
    "a fenced run's tasks are retried": Scenario(runs=(ONE_TASK,) * 2, retries=2),
    "another cut on replay": Scenario(
        runs=(STREAM, SWAPPED), orderly=True, crashes=1, retries=1, late_inits=1, aborts=False
    ),
    "fewer tasks on replay": Scenario(
        runs=(STREAM, ONE_TASK), batches=2, orderly=True, crashes=1, retries=1, late_inits=1, aborts=False
    ),
    "all gone, written in another cut": Scenario(runs=(ONE_TASK, STREAM), timeouts=1, aborts=False),
    "an empty task on replay": Scenario(
        runs=(STREAM, ONE_EMPTY), batches=2, orderly=True, crashes=1, retries=1, late_inits=1, aborts=False
    ),
    "more tasks on replay": Scenario(runs=(ONE_TASK, STREAM), orderly=True, crashes=1, aborts=False),
    "two queries, one prefix": Scenario(runs=(STREAM, OTHER), aborts=False, timeouts=1),
    "a name handed over": Scenario(runs=(ONE_TASK, HEIR), batches=2, timeouts=1, aborts=False),
    "a name handed over and back": Scenario(
        runs=(FIRST_ONLY, replace(HEIR, until=0), BACK, HEIR), batches=2, orderly=True, crashes=1, timeouts=1
    ),
    "a name handed over, reads that lag": Scenario(runs=(ONE_TASK, HEIR), batches=2, stale_reads=1, aborts=False),
    "a name handed over, without rows": Scenario(
        runs=(ONE_TASK, replace(HEIR, cut="nothing"), ONE_TASK), batches=2, aborts=False
    ),
    "batches without rows": Scenario(runs=(NOTHING, NOTHING), batches=2),
    "a batch planned anew, without rows at first": Scenario(
        runs=(NOTHING, STREAM), batches=2, restores=1, aborts=False
    ),
    "an older checkpoint": Scenario(runs=(STREAM, LONGER), batches=2, restores=1, aborts=False),
    "the ledger lost": Scenario(
        batches=2, orderly=True, ledger_losses=1, crashes=1, retries=1, late_inits=1, aborts=False
    ),
    "the ledger lost, an abort": Scenario(runs=(ONE_TASK,), batches=2, ledger_losses=1),
    "another guarantee in between": Scenario(
        runs=(FIRST_ONLY, AT_LEAST_ONCE, ONE_TASK), batches=3, orderly=True, crashes=1, aborts=False
    ),
    "another ledger in between": Scenario(
        runs=(ONE_TASK, Plan(cut="one task", ledger=1), ONE_TASK), batches=2, aborts=False
    ),
    "a forgotten trust-checkpoint": Scenario(
        runs=(STREAM, Plan(trust=Trust("checkpoint", 0))),
        batches=2,
        orderly=True,
        ledger_losses=1,
        crashes=1,
        aborts=False,
    ),
    "a forgotten trust-ledger": Scenario(
        runs=(STREAM, Plan(cut="longer", trust=Trust("ledger", 0))), batches=2, orderly=True, restores=1, aborts=False
    ),
    "a torn batch, accepted": Scenario(
        runs=(STREAM, Plan(cut="swapped", trust=Trust("ledger", 0))), batches=2, timeouts=1, aborts=False
    ),
    "versions": Scenario(kind="versions", aborts=False, timeouts=1),
    "versions, killed between decision and commit": Scenario(
        kind="versions", orderly=True, crashes=1, retries=1, late_inits=1, aborts=False
    ),
    "versions, given up": Scenario(
        runs=(Plan(version=0, cut="nothing"), Plan(version=1)), batches=2, kind="versions", orderly=True, mid_write=True
    ),
    "versions, another ledger, given up": Scenario(
        runs=(Plan(version=0), Plan(version=1, cut="one task", ledger=1)), batches=2, kind="versions"
    ),
    "versions out of order": Scenario(
        runs=(Plan(version=1), Plan(version=0)), batches=2, kind="versions", aborts=False, timeouts=1
    ),
    "versions, an answer lost": Scenario(runs=(STREAM,), kind="versions", retries=1, lost_answers=1),
    "versions, transactions v1": Scenario(runs=(ONE_TASK,) * 2, kind="versions", protocol="v1", lost_answers=1),
    "versions, close to their timeout": Scenario(runs=(STREAM,), kind="versions", clock=True, lost_answers=1),
    "a batch job beside a stream": Scenario(runs=(ONE_TASK, JOB), batches=2, stale_reads=1),
    "a stream beside a batch job": Scenario(
        runs=(
            replace(ONE_TASK, kind="versions"),
            replace(ONE_TASK, query=1, write=1),
            replace(ONE_TASK, query=1, write=1),
        ),
        batches=2,
        aborts=False,
    ),
    "a batch job and a stream of one name": Scenario(runs=(ONE_TASK, replace(JOB, write=0)), batches=2, timeouts=1),
    "two batch jobs beside each other": Scenario(runs=(replace(ONE_TASK, kind="versions"), JOB), retries=1),
    "a topic created again, two batches": Scenario(runs=(ONE_TASK,) * 2, batches=2, deletions=1, aborts=False),
    "one of two topics created again": Scenario(
        runs=(STREAM,) * 3, deletions=1, topics=2, timeouts=1, orderly=True, crashes=2, aborts=False
    ),
    "a topic created again, accepted": Scenario(
        runs=(ONE_TASK, Plan(cut="one task", trust=Trust("ledger", 0))), batches=2, deletions=1, aborts=False
    ),
}

LARGE: dict[str, Scenario] = {
    "two runs, aborts": Scenario(),
    "two runs, two batches, aborts, a timeout": Scenario(batches=2, timeouts=1),
    "two runs, aborts, a timeout, a lost answer": Scenario(timeouts=1, lost_answers=1),
    "two runs, aborts, a zombie attempt": Scenario(retries=1, late_inits=1),
    "two runs, two zombie attempts, a timeout": Scenario(retries=2, timeouts=1, aborts=False),
    "three runs": Scenario(runs=(STREAM,) * 3, aborts=False),
    "one task, two runs, two batches, everything": Scenario(
        runs=(ONE_TASK,) * 2, batches=2, timeouts=1, retries=1, late_inits=1, lost_answers=1
    ),
    "one task, three runs, aborts": Scenario(runs=(ONE_TASK,) * 3),
    "one task, three runs, two batches": Scenario(
        runs=(ONE_TASK,) * 3, batches=2, timeouts=1, lost_answers=1, aborts=False
    ),
    "one task, three runs, aborts, reads that lag": Scenario(runs=(ONE_TASK,) * 3, stale_reads=1, timeouts=1),
    "three runs, two batches": Scenario(runs=(STREAM,) * 3, batches=2, aborts=False),
    "one task, three runs, two zombie attempts": Scenario(runs=(ONE_TASK,) * 3, retries=2, late_inits=1, aborts=False),
    "cuts that change, zombies": Scenario(runs=(STREAM, SWAPPED), retries=1, late_inits=1, timeouts=1, aborts=False),
    "cuts that change twice": Scenario(
        runs=(STREAM, SWAPPED, STREAM), orderly=True, crashes=2, retries=2, late_inits=1, timeouts=1, aborts=False
    ),
    "task counts that change, aborts": Scenario(runs=(STREAM, ONE_TASK), timeouts=1, retries=1, late_inits=1),
    "empty tasks that change, aborts": Scenario(runs=(ONE_EMPTY, STREAM), timeouts=1, retries=1, late_inits=1),
    "two queries in turn": Scenario(runs=(STREAM, OTHER, STREAM), aborts=False),
    "one task, two queries in turn": Scenario(
        runs=(ONE_TASK, Plan(query=1, cut="one task"), ONE_TASK), timeouts=1, retries=1, aborts=False
    ),
    "a name handed over, aborts, everything": Scenario(
        runs=(ONE_TASK, HEIR), batches=2, timeouts=1, retries=1, stale_reads=1
    ),
    "a name handed over, back and over again": Scenario(
        runs=(FIRST_ONLY, replace(HEIR, until=0), BACK, replace(HEIR, replaces=Replaces(0, turn=2)), ONE_TASK),
        batches=3,
        orderly=True,
        crashes=1,
        timeouts=1,
    ),
    "two queries, aborts": Scenario(runs=(STREAM, OTHER), timeouts=1),
    "an older checkpoint, zombies": Scenario(runs=(ONE_TASK, ONE_TASK, LONGER), batches=2, restores=1, aborts=False),
    "the ledger lost, zombies": Scenario(batches=2, ledger_losses=1, retries=1, late_inits=1, timeouts=1, aborts=False),
    "versions, aborts, a timeout": Scenario(kind="versions", timeouts=1),
    "versions out of order, three runs": Scenario(
        runs=(Plan(version=1, cut="one task"), Plan(version=0), Plan(version=1, cut="one task")),
        batches=2,
        kind="versions",
        aborts=False,
    ),
    "ends that arrive late, two tasks, two batches": Scenario(batches=2, late_ends=2, aborts=False),
    "ends that arrive late, two tasks, aborts": Scenario(late_ends=1, timeouts=1),
    "ends that arrive late, three runs": Scenario(runs=(ONE_TASK,) * 3, late_ends=2, aborts=False),
    "ends that arrive late, before Kafka 3.6": Scenario(
        runs=(ONE_TASK,) * 2, batches=2, protocol="unverified", mid_write=True, late_rows=1, late_ends=1
    ),
    "ends that arrive late, versions": Scenario(kind="versions", late_ends=1, timeouts=1),
    "reads that lag, a zombie attempt, a timeout": Scenario(
        runs=(ONE_TASK,) * 2, batches=2, stale_reads=1, retries=1, late_inits=1, timeouts=1
    ),
    "reads that lag, three runs, two batches": Scenario(runs=(ONE_TASK,) * 3, batches=2, stale_reads=2, aborts=False),
    "reads that lag, aborts": Scenario(stale_reads=2, lost_answers=1),
    "mid-write, a task that fails, aborts": Scenario(mid_write=True, failures=1),
    "killed in mid-write, a zombie attempt": Scenario(
        batches=2, orderly=True, crashes=2, retries=1, failures=1, mid_write=True
    ),
    "transactions v1, aborts, a zombie attempt": Scenario(
        runs=(STREAM, ONE_TASK), protocol="v1", retries=1, mid_write=True
    ),
    "transactions v1, a sweep that sleeps": Scenario(
        runs=(ONE_TASK,) * 3, batches=2, protocol="v1", mid_write=True, aborts=False, late_inits=1
    ),
    "before Kafka 3.6, everything": Scenario(
        runs=(ONE_TASK,) * 2,
        batches=2,
        protocol="unverified",
        mid_write=True,
        late_rows=2,
        retries=1,
        late_inits=1,
        timeouts=1,
    ),
    "before Kafka 3.6, three runs": Scenario(
        runs=(ONE_TASK,) * 3, batches=2, protocol="unverified", mid_write=True, late_rows=1, aborts=False
    ),
    "another guarantee in between, twice": Scenario(
        runs=(FIRST_ONLY, AT_LEAST_ONCE, STREAM, STREAM), batches=4, orderly=True, crashes=2, retries=1
    ),
    "another ledger in between, aborts": Scenario(runs=(STREAM, Plan(ledger=1), STREAM), batches=2, aborts=False),
    "versions, close to their timeout, two runs": Scenario(
        runs=(ONE_TASK,) * 2, kind="versions", retries=1, lost_answers=1, clock=True
    ),
    "a batch job beside a stream, everything": Scenario(
        runs=(ONE_TASK, JOB), batches=2, timeouts=1, retries=1, lost_answers=1, mid_write=True
    ),
    "a batch job beside a stream that starts again": Scenario(runs=(ONE_TASK, JOB, ONE_TASK)),
    "a batch job that is rerun beside a stream": Scenario(runs=(ONE_TASK, JOB, JOB)),
    "a batch job and a stream, both started again": Scenario(runs=(ONE_TASK, ONE_TASK, JOB, JOB), aborts=False),
    "a batch job and a stream, killed": Scenario(
        runs=(ONE_TASK, JOB, ONE_TASK, JOB), batches=2, orderly=True, crashes=2
    ),
    "a batch job beside a stream, two tasks": Scenario(runs=(STREAM, replace(JOB, cut="halves")), batches=2),
    "a batch job beside a stream, transactions v1": Scenario(
        runs=(ONE_TASK, JOB, ONE_TASK), batches=2, protocol="v1", mid_write=True, aborts=False
    ),
    "a batch job beside a stream, before Kafka 3.6": Scenario(
        runs=(ONE_TASK, JOB), batches=2, protocol="unverified", mid_write=True, late_rows=1, late_ends=1
    ),
    "a stream and two batch jobs": Scenario(runs=(ONE_TASK, JOB, replace(JOB, query=2, write=2))),
    "a topic created again, two tasks": Scenario(deletions=1, timeouts=1, aborts=False),
    "one of two topics created again, two runs": Scenario(deletions=1, topics=2, timeouts=1, aborts=False),
    "a topic created again, twice": Scenario(runs=(ONE_TASK,) * 2, deletions=2, timeouts=1, aborts=False),
    "a topic created again, versions": Scenario(kind="versions", deletions=1, timeouts=1, aborts=False),
    "a topic and the ledger created again": Scenario(
        runs=(ONE_TASK,) * 2, batches=2, deletions=1, ledger_losses=1, retries=1, late_inits=1, aborts=False
    ),
}
