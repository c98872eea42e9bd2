"""Records what the sink does in a process of Spark, from outside: its methods are wrapped when they are imported.

``sitecustomize.py`` in ``support`` calls ``install`` in every process. The steps of ``kill_points`` act there, too, and
a fault that is planted into the product is closer to it than the record.
``PROXIES`` holds JSON: the address of each broker and that of the proxy before it, through which the sink connects. A
driver gives its executors those of ``PROXIES_OF_EXECUTORS``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.faults.support import kill_points
from tests.soak import planted
from tests.soak.events import FOLDER, recorder_of_environment, write_of
from tests.soak.processes import START
from tests.support import child_processes
from tests.support.addresses import address_of

PROXIES, PROXIES_OF_EXECUTORS = "SOAK_PROXIES", "SOAK_PROXIES_OF_EXECUTORS"
PYTHON_PATH = os.pathsep.join((child_processes.PYTHON_PATH, str(Path(__file__).parent / "support")))
"""PYTHONPATH of a process that is recorded with its children."""


def install():
    kill_points.install(CHANGES if FOLDER in os.environ else {})


def _entry(write_id):
    return f"{write_id.query}/{write_id.number}"


def _transaction(prepared):
    return [prepared.transactional_id, prepared.producer_id, prepared.epoch]


class _TaskOfSpark:
    """The task that this process runs. ``write`` is known from its first row on."""

    def __init__(self, record):
        from pyspark import TaskContext

        context = TaskContext.get()
        self._record = record
        self.write = None
        self.name = {
            "task": context.partitionId(),
            "attempt": f"{os.environ[START]}-{os.getpid()}-{context.taskAttemptId()}",
        }

    def handed(self, batches, key):
        """The batches, each recorded before the sink gets it. ``key``: index of the column that names the rows."""
        for batch in batches:
            keys = batch.column(key).to_pylist()
            rows = [key.decode() if isinstance(key, bytes) else key for key in keys]
            for write in dict.fromkeys(map(write_of, rows)):
                self.write = self.write or write
                own = [row for row in rows if write_of(row) == write]
                self._record("handed", write=write, **self.name, rows=own)
            yield batch

    def reported(self, message):
        report = message.report
        prepared = None if report is None else report.outcome.prepared
        self._record(
            "reported",
            write=self.write,
            entry=None if report is None else _entry(report.write_id),
            **self.name,
            transaction=None if prepared is None else _transaction(prepared),
            places=[
                [each.topic, each.partition, each.first_offset, each.last_offset, each.count] for each in message.writes
            ],
        )


def _recorded_write(write, record):
    def recorded(sink_write, iterator):
        task = _TaskOfSpark(record)
        message = write(sink_write, task.handed(iterator, sink_write.layout.key))
        task.reported(message)
        return message

    return recorded


def _entry_of(sink_write, messages):
    """The entry of a write, None at-least-once. That of a stream is known if a task has reported."""
    reports = [getattr(message, "report", None) for message in messages]
    named = (each.write_id for each in (sink_write.plan, *reports) if each is not None)
    return next((_entry(write_id) for write_id in named if write_id is not None), None)


def _recorded_end(end, record):
    def recorded(sink_write, messages, *more):
        entry = _entry_of(sink_write, messages)
        verdict = {"entry": entry, "start": os.environ[START], "by": "sink"}
        try:
            outcome = end(sink_write, messages, *more)
        except BaseException as error:
            record("verdict", **verdict, outcome="failed", error=str(error))
            raise
        record("verdict", **verdict, outcome="committed", error="")
        return outcome

    return recorded


def _recorded_give_up(give_up, record):
    def recorded(sink_write, messages, *more):
        line = give_up(sink_write, messages, *more)
        given_up = {"entry": _entry_of(sink_write, messages), "start": os.environ[START]}
        record("gave up", **given_up, text=line.text)
        return line

    return recorded


def _recorded_intent(record_entry, record, not_decided):
    def recorded(session, driver, entry, *more):
        if entry.state.value != "intent":
            return record_entry(session, driver, entry, *more)
        transactions = [_transaction(each) for each in entry.prepared.values()]
        intent = {"entry": _entry(entry), "start": os.environ[START], "transactions": transactions}
        record("intent", **intent, outcome="asked")
        try:
            successor = record_entry(session, driver, entry, *more)
        except not_decided:
            record("intent", **intent, outcome="not decided")
            raise
        except Exception:
            record("intent", **intent, outcome="unknown")
            raise
        record("intent", **intent, outcome="decided")
        return successor

    return recorded


def _recorded_ends(end, record, endings_of):
    """``Committer.end`` or ``abort``. ``endings_of``: what it is asked for, as pairs of transaction and commit."""

    def recorded(committer, asked, *more):
        told = list(asked)
        outcomes = end(committer, told, *more)
        for (prepared, commit), outcome in zip(endings_of(told), outcomes, strict=True):
            if not prepared.transactional_id.endswith("-driver"):  # those hold entries of the ledger
                verdict = outcome.verdict.name.lower()
                record("end", transaction=_transaction(prepared), commit=commit, outcome=verdict)
        return outcomes

    return recorded


def _change_sink_write(module):
    planted.change_sink_write(module)
    record, sink_write = recorder_of_environment(), module.SinkWrite
    sink_write.write = _recorded_write(sink_write.write, record)
    sink_write.end = _recorded_end(sink_write.end, record)
    sink_write.give_up = _recorded_give_up(sink_write.give_up, record)


def _change_session(module):
    record = recorder_of_environment()
    module.Session.record = _recorded_intent(module.Session.record, record, module.NotDecidedError)


def _change_committer(module):
    record = recorder_of_environment()
    module.Committer.end = _recorded_ends(module.Committer.end, record, list)
    module.Committer.abort = _recorded_ends(
        module.Committer.abort, record, lambda told: [(each, False) for each in told]
    )


def _change_selector(module):
    from tests.faults.support.proxy import redirected

    proxies = json.loads(os.environ[PROXIES])
    module.Selector = redirected({address_of(broker): address_of(proxy) for broker, proxy in proxies.items()})


CHANGES = {
    "spark_kafka_sink.spark.sink_write": _change_sink_write,
    "spark_kafka_sink.exactly_once.session": _change_session,
    "spark_kafka_sink.exactly_once.committer": _change_committer,
    "spark_kafka_sink.network.rpc": _change_selector,
    "spark_kafka_sink.producer.core": _change_selector,
    "spark_kafka_sink.producer.producer": planted.change_producer,
}
