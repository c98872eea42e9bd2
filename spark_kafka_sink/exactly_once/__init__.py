"""Exactly-once writes: the life of a task's transaction, and what a crash at each step leads to.

The tasks of a batch write in a Kafka transaction each. One record of the *ledger*, a compacted topic, commits all of
them or none. Planning, tasks, commit and abort are processes that share only the ledger and what Spark carries between
them (``values``). Each of them may die at any step, or wake late and find that another run has taken its place.

**Planned**, by ``plan`` on the driver. It initializes the transactional id ``<name>-driver``, which fences the drivers
of earlier runs, and reads the ledger up to a record of its own, so that it misses no decision. It completes what is
decided, and aborts what else earlier runs left open (``sweep``). The tasks get the ledger's entries with the plan.
    Crash: no row is written yet. The next run plans again, and fences this one.

**Written**, by ``task`` on an executor. If the ledger has the batch as committed, its rows are only compared with the
ledger; otherwise they are written, repaired or refused (``decisions``). The task initializes ``<name>-<task>``, which
ends what an earlier attempt has left open, and writes its rows in a transaction of this id. Crash: Spark runs the task
again. If it gives up, abort, the next run's sweep or transaction.timeout.ms ends the transaction. No reader with
isolation.level=read_committed has seen a row of it.

**Prepared**, by the same task. All rows are acknowledged. In the same transaction the task appends a *marker* to the
ledger, which is therefore committed exactly when the rows are. The transaction stays open, and its identity goes to
the driver.
    Crash, or the transaction times out: as above, because commit looks whether all transactions are still open.

**Decided**, by ``commit`` on the driver. It writes the *intent*, the entry that names all prepared transactions, in a
transaction of ``<name>-driver``, which fails if another run has fenced this one. As long as the intent is not
committed, everything is aborted in the end; afterwards, everything is committed. Nothing takes a decision back. Crash
before: Spark's abort or the next run aborts the transactions, and the replay of the batch writes its rows again. Crash
after, or the response is lost: the next process that reads the ledger finds the intent, or finds that there is none.

**Committed**, by ``commit.complete`` in any process that has read the intent, any number of times. A transaction that
is no longer open was committed if its marker is. Otherwise its rows are lost, for example because it timed out; the
entry stays an intent until the replay has written them again, after checksums have proved that it has the same rows.
    Crash: some tasks' rows are visible, the others' when the next run, abort or an operator (``operator_commands``)
    completes the batch.

**Told**: the entry becomes *done*, Spark notes the batch in its checkpoint, and the driver logs its line.
    Crash: Spark replays the batch. The tasks find it in the ledger, compare their rows with it and write nothing.

``abort`` runs when Spark gives a batch up, perhaps beside its commit: it completes what is decided, and ends the rest.
A late process of a fenced run decides nothing, and ends only transactions of its own run.

``docs/exactly-once-protocol.md`` has the details, ``tests/model`` every interleaving. This package knows Kafka, not
Spark.
"""
