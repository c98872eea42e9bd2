"""The rules of the checker about decisions: what an intent names, and how its transactions end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import inf

from tests.histories.findings import Excuse, Finding, Kind, Reason, listed
from tests.histories.index import COMMITTED, History, Intent, Report, Spot, Task, Transaction


def decided_but_aborted(history: History) -> Iterator[Finding]:
    """Transactions that the sink has aborted, though a decided intent names them, or EndTxn has committed them, or
    another one of the same intent."""
    for write, intents in history.intents.items():
        for transaction in dict.fromkeys(each for intent in intents for each in intent.transactions):
            ends = history.ends.get(transaction, set())
            if (False, "aborted") not in ends:
                continue
            named = [intent for intent in intents if transaction in intent.transactions]
            if any(intent.outcome == "decided" for intent in named):
                yield Finding(Kind.DECIDED_BUT_ABORTED, write, f"{transaction} was aborted after the decision")
            elif (True, "committed") in ends:
                yield Finding(Kind.DECIDED_BUT_ABORTED, write, f"EndTxn has committed {transaction}, and aborted it")
            elif committed := _committed_beside(history, named):
                text = f"{transaction} was aborted, and EndTxn has committed {committed} of the same intent"
                yield Finding(Kind.DECIDED_BUT_ABORTED, write, text)


def _committed_beside(history: History, intents: Iterable[Intent]) -> Transaction | None:
    """A transaction of the intents that EndTxn has committed, if they may be decided."""
    named = sorted({each for intent in intents if intent.may_be_decided for each in intent.transactions})
    return next((each for each in named if (True, "committed") in history.ends.get(each, set())), None)


def decided_without_their_topic(history: History) -> Iterator[Finding | Excuse]:
    """Intents that were asked for after a topic of theirs had been deleted and created again, and are decided. The sink
    looks for its topics after the last task has reported, and just before it asks for the intent.

    If all tasks had reported before, and a fault struck the workload since the topic was deleted, the process may have
    been stopped between the look and the intent. The topic is created again only when no broker knows the old one.
    """
    for write, intents in history.intents.items():
        for intent in (each for each in intents if each.outcome == "decided"):
            reports = [history.by_transaction[each] for each in intent.transactions if each in history.by_transaction]
            for topic, incarnation in sorted({topic for report in reports for topic in report.all_topics}):
                replaced = history.replaced(topic, incarnation)
                if replaced is None or intent.at < replaced[1]:
                    continue
                last_report = max(report.at for report in reports)
                if last_report < replaced[1] and history.meets_a_fault(write, replaced[0], intent.at):
                    yield Excuse(Reason.STOPPED_BEFORE_THE_INTENT, write)
                    continue
                text = f"its intent was asked for when topic {topic} had been created again, and is decided"
                yield Finding(Kind.WITHOUT_ITS_TOPIC, write, text)


def committed_too_early(history: History) -> Iterator[Finding]:
    """Transactions that the sink asked to commit, or of which a read_committed reader saw rows, before it asked for an
    intent that names them. The intent is the decision: a driver that dies in between leaves rows that are visible, and
    that its successor writes again.

    Reads are recorded after they happened, and requests before they are sent, so the order of the record is enough.
    """
    for transaction, at in history.commits.items():
        if history.first_named.get(transaction, inf) > at:
            report = history.by_transaction.get(transaction)
            text = f"EndTxn was to commit {transaction} before an intent that names it was asked for"
            yield Finding(Kind.COMMITTED_TOO_EARLY, str(report.task) if report else transaction.id, text)
    early: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for view in history.of_kind(COMMITTED):
        for at, partition, rows in view.told:
            for offset, row in rows:
                authors = history.authors(Spot(row, partition, offset))
                named = [history.first_named[each] for each in _transactions(authors) if each in history.first_named]
                if named and min(named) > at:
                    early[str(authors[0].task), view.reader][f"{row} in {partition} at {offset}"] = None
    for (about, reader), spots in early.items():
        text = f"{reader} saw rows of it before an intent that names their transaction was asked for"
        yield Finding(Kind.COMMITTED_TOO_EARLY, about, f"{text}: {listed(list(spots))}")


def _transactions(reports: Iterable[Report]) -> list[Transaction]:
    return [report.transaction for report in reports if report.transaction is not None]


def shared_transactions(history: History) -> Iterator[Finding]:
    """Transactions that an intent names though a task of another write has reported them, and those that two attempts
    have reported: each attempt has a transaction of its own."""
    for write, intents in history.intents.items():
        for transaction in sorted({each for intent in intents for each in intent.transactions}):
            foreign = [str(each.task) for each in history.reports_of.get(transaction, ()) if each.task.write != write]
            if foreign:
                text = f"an intent names {transaction}, which {listed(foreign)} has reported"
                yield Finding(Kind.SHARED_TRANSACTION, write, text)
    for transaction, reports in history.reports_of.items():
        attempts = [f"{each.name} of {each.task}" for each in dict.fromkeys(report.attempt for report in reports)]
        if len(attempts) > 1:
            text = f"{transaction} was reported by the attempts {listed(attempts)}"
            yield Finding(Kind.SHARED_TRANSACTION, str(reports[0].task), text)


def tasks_left_out(history: History) -> Iterator[Finding]:
    """Tasks that have reported rows in the run of an intent which may be decided, and of which it names nothing: their
    rows are lost. Of several attempts of a task, it names the one that Spark has accepted."""
    for write, intents in history.intents.items():
        for intent in (each for each in intents if each.may_be_decided):
            tasks: dict[Task, set[Transaction]] = defaultdict(set)
            for attempt in history.attempts_in(write, history.run(write, intent.at, intent.start)):
                for report in attempt.reports:
                    if report.transaction is not None and report.places and report.at < intent.at:
                        tasks[report.task].add(report.transaction)
            for task in sorted(task for task, own in tasks.items() if own.isdisjoint(intent.transactions)):
                own = listed(sorted(map(str, tasks[task])))
                text = f"an intent leaves it out, though it has reported {own}"
                yield Finding(Kind.LEFT_OUT, str(task), text)


def unreported_transactions(history: History) -> Iterator[Finding]:
    """Transactions that an intent names which is decided, or may be, and that no task has reported. Nobody knows which
    rows they have, so no other rule can judge these."""
    for write, intents in history.intents.items():
        named = {each for intent in intents if intent.may_be_decided for each in intent.transactions}
        for transaction in sorted(named - history.reported):
            yield Finding(Kind.NOT_REPORTED, write, f"an intent names {transaction}, which no task has reported")


RULES: tuple[Callable[[History], Iterator[Finding | Excuse]], ...] = (
    decided_but_aborted,
    decided_without_their_topic,
    committed_too_early,
    tasks_left_out,
    shared_transactions,
    unreported_transactions,
)
