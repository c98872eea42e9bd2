"""Records what the sink does in a process of Spark, from outside: its methods are wrapped when they are imported.

``sitecustomize.py`` in ``support`` calls ``install`` in every process. The steps of ``kill_points`` act there, too.
``PROXIES`` holds JSON: the address of each broker and that of the proxy before it, through which the sink connects. A
driver gives its executors those of ``PROXIES_OF_EXECUTORS``.
"""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path

from tests import child_processes
from tests.addresses import address_of
from tests.faults.chaos.processes import START
from tests.faults.support import kill_points
from tests.histories.events import write_of
from tests.histories.recorder import FOLDER, recorder_of_environment, short

PROXIES, PROXIES_OF_EXECUTORS = "HISTORY_PROXIES", "HISTORY_PROXIES_OF_EXECUTORS"
PYTHON_PATH = os.pathsep.join((child_processes.PYTHON_PATH, str(Path(__file__).parent / "support")))
"""PYTHONPATH of a process that is recorded with its children."""

PLANNING = ("driver initialised", "planned")


def install():
    if "FAKETIME" in os.environ:
        time.sleep = _sleep
    kill_points.install(CHANGES if FOLDER in os.environ else {})


def _sleep(seconds):
    """``time.sleep`` where libfaketime is loaded. It refuses that of Python, because it takes the time of the monotonic
    clock at which to wake up for one of the wall clock."""
    select.select([], [], [], seconds)


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

    def failed(self, error):
        self._record("failed", write=self.write, **self.name, error=short(str(error)))

    def reported(self, message):
        report = message.report
        prepared = None if report is None else report.share.prepared
        self._record(
            "reported",
            write=self.write,
            entry=None if report is None else _entry(report.write_id),
            **self.name,
            action="write" if report is None else report.action.name.lower(),
            transaction=None if prepared is None else _transaction(prepared),
            places=[
                [each.topic, each.partition, each.first_offset, each.last_offset, each.count] for each in message.writes
            ],
            topics={} if report is None else {each.name: str(each.id) for each in report.topics},
        )


def _recorded_write(write, record):
    def recorded(sink_write, iterator):
        task = _TaskOfSpark(record)
        try:
            message = write(sink_write, task.handed(iterator, sink_write.layout.key))
        except BaseException as error:
            task.failed(error)
            raise
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
            record("verdict", **verdict, outcome="failed", error=short(str(error)))
            raise
        record("verdict", **verdict, outcome="committed", error="", replayed=outcome.replayed)
        return outcome

    return recorded


def _recorded_give_up(give_up, record):
    def recorded(sink_write, messages, *more):
        line = give_up(sink_write, messages, *more)
        given_up = {"entry": _entry_of(sink_write, messages), "start": os.environ[START]}
        record("gave up", **given_up, text=short(line.text))
        return line

    return recorded


def _recorded_intent(record_entry, record, not_decided):
    def recorded(session, driver, entry, *more):
        if entry.state.value != "intent":
            return record_entry(session, driver, entry, *more)
        transactions = [_transaction(each) for each in entry.prepared.values()]
        intent = {"entry": _entry(entry), "start": os.environ[START], "state": "intent", "transactions": transactions}
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


def _recorded_ends(end, record):
    def recorded(committer, endings, *more):
        told = list(endings)
        _record_ends(record, ((prepared, commit, "asked") for prepared, commit in told))
        outcomes = end(committer, told, *more)
        verdicts = zip(told, outcomes, strict=True)
        _record_ends(record, ((*ending, outcome.verdict.name.lower()) for ending, outcome in verdicts))
        return outcomes

    return recorded


def _recorded_aborts(abort, record):
    def recorded(committer, prepared, *more):
        told = list(prepared)
        _record_ends(record, ((each, False, "asked") for each in told))
        outcomes = abort(committer, told, *more)
        verdicts = zip(told, outcomes, strict=True)
        _record_ends(record, ((each, False, outcome.verdict.name.lower()) for each, outcome in verdicts))
        return outcomes

    return recorded


def _record_ends(record, ends):
    """Those of tasks: the driver's own transactions hold entries of the ledger."""
    for prepared, commit, outcome in ends:
        if not prepared.transactional_id.endswith("-driver"):
            record("end", transaction=_transaction(prepared), commit=commit, outcome=outcome)


def _recorded_steps(reach, record):
    def recorded(step, task=None):
        if step in PLANNING:
            record("step", start=os.environ[START], step=step)
        reach(step, task)

    return recorded


def _change_steps(module):
    module.reach = _recorded_steps(module.reach, recorder_of_environment())


def _recorded_plan(plan, record):
    def recorded(*arguments):
        record("step", start=os.environ[START], step="planning begins")
        return plan(*arguments)

    return recorded


def _change_plan(module):
    module._plan = _recorded_plan(module._plan, recorder_of_environment())


def _change_sink_write(module):
    record, sink_write = recorder_of_environment(), module.SinkWrite
    sink_write.write = _recorded_write(sink_write.write, record)
    sink_write.end = _recorded_end(sink_write.end, record)
    sink_write.give_up = _recorded_give_up(sink_write.give_up, record)


def _change_session(module):
    record = recorder_of_environment()
    module.Session.record = _recorded_intent(module.Session.record, record, module.NotDecidedError)


def _change_committer(module):
    record = recorder_of_environment()
    module.Committer.end = _recorded_ends(module.Committer.end, record)
    module.Committer.abort = _recorded_aborts(module.Committer.abort, record)


def _change_selector(module):
    from tests.faults.support.proxy import redirected

    proxies = json.loads(os.environ[PROXIES])
    module.Selector = redirected({address_of(broker): address_of(proxy) for broker, proxy in proxies.items()})


CHANGES = {
    "spark_kafka_sink.exactly_once.steps": _change_steps,
    "spark_kafka_sink.exactly_once.plan": _change_plan,
    "spark_kafka_sink.spark.sink_write": _change_sink_write,
    "spark_kafka_sink.exactly_once.session": _change_session,
    "spark_kafka_sink.producer.transactions.committer": _change_committer,
    "spark_kafka_sink.network.rpc": _change_selector,
    "spark_kafka_sink.producer.engine": _change_selector,
}
