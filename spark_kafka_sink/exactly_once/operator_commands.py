"""The operator's commands for exactly-once writes: discover what they left in a cluster, commit what is decided, abort
the rest, and forget entries that are no longer needed. Discovery fences nothing, because it initialises no driver id.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from spark_kafka_sink.exactly_once.commit import complete_intents
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, LostRowsError, Progress
from spark_kafka_sink.exactly_once.ledger import Ledger
from spark_kafka_sink.exactly_once.ledger_format import removal_write
from spark_kafka_sink.exactly_once.ledger_topic import PARTITIONS, ledger_partitions
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.sweep import CannotListError, list_ids, list_matching, list_open, sweep
from spark_kafka_sink.exactly_once.values import (
    Entry,
    LedgerPartitions,
    OpenTransaction,
    list_numbers,
    name_of_driver,
    name_of_task,
)

_log = logging.getLogger("spark_kafka_sink.exactly_once")


@dataclass(frozen=True, slots=True)
class FoundWrite:
    """The traces of a write: its entries in the ledger, and its tasks' open transactions."""

    name: str
    entries: Mapping[str, Entry]
    """Query → its last entry."""
    transactions: tuple[OpenTransaction, ...]
    unreadable: str | None = None
    """Why the entries cannot be read."""

    @property
    def kind(self) -> str:
        """The kinds of its entries, as text."""
        return " and ".join(sorted({entry.kind.value for entry in self.entries.values()})) or "no entry"

    @property
    def intents(self) -> list[Entry]:
        return _intents(self.entries)

    @property
    def undecided(self) -> list[OpenTransaction]:
        """The open transactions that no intent names."""
        return [transaction for transaction in self.transactions if self.intent_of(transaction) is None]

    def intent_of(self, transaction: OpenTransaction) -> Entry | None:
        return next((entry for entry in self.intents if transaction.key in entry.transaction_keys), None)


def discover(session: Session, deadline: float) -> list[FoundWrite]:
    """Every write with an entry in the ledger or an open transaction, by name; the session's own name is ignored."""
    ledger, unreadable = _read_ledger(session, deadline)
    try:
        names, transactions = _list_open(session, ledger.keys() | unreadable.keys(), deadline)
    except CannotListError as error:
        _log.warning("%s, so open transactions are not shown, and abort does not end them", error)
        names, transactions = {*ledger, *unreadable}, {}
    return [
        FoundWrite(name, ledger.get(name, {}), tuple(sorted(transactions.get(name, ()))), unreadable.get(name))
        for name in sorted(names)
        if ledger.get(name) or transactions.get(name) or name in unreadable
    ]


def _list_open(
    session: Session, names: Collection[str], deadline: float
) -> tuple[set[str], dict[str, list[OpenTransaction]]]:
    """The names in ``names`` and in driver ids that the brokers list, each with its open transactions."""
    drivers = map(name_of_driver, list_ids(session.cluster, deadline))
    every = {name for name in drivers if name is not None}.union(names)
    transactions: dict[str, list[OpenTransaction]] = {}
    for each in list_matching(session.cluster, lambda each: name_of_task(each) in every, deadline):
        transactions.setdefault(name_of_task(each.transactional_id) or "", []).append(each)
    return every, transactions


def similar_names(found: Sequence[FoundWrite], wanted: str) -> list[str]:
    """The names of writes that ``wanted`` may mean. It may be a query's id or name, or similar to the name of a
    write."""
    called = {write.name: {write.name} for write in found}
    for write in found:
        called[write.name] |= {name for entry in write.entries.values() for name in (entry.query, entry.query_name)}
    exact = [name for name, words in called.items() if wanted in words]
    return exact or [name for name, words in called.items() if get_close_matches(wanted, words, 1, cutoff=0.72)][:3]


def commit_decided(session: Session, deadline: float) -> list[Entry]:
    """Completes every intent of the name and fences its running query. Returns the completed entries; raises
    ``LostRowsError`` at the end if some have lost rows, which only a replay can write again."""
    driver = session.init_driver(deadline)
    entries = dict(session.read_ledger(driver, deadline).entries)
    lost = complete_intents(session, driver, entries, deadline).lost
    completed = [entry for entry in _intents(entries) if entry.query not in lost]
    if lost:
        tasks = "; ".join(f"{entries[query]}: tasks {list_numbers(missing)}" for query, missing in lost.items())
        committed = f" Committed: {' and '.join(map(str, completed))}." if completed else ""
        advice = {
            session.settings.advice(entries[query].kind, Progress.of_lost(entries[query], missing)): None
            for query, missing in lost.items()
        }
        raise LostRowsError(
            f"Rows are gone from Kafka (name {session.settings.name}; {tasks}); the other tasks' are committed. "
            f"{' '.join(advice)} `{session.settings.command('abort')} --force` gives them up.{committed}"
        )
    return completed


def abort_undecided(
    session: Session, force: bool, deadline: float, found: Sequence[OpenTransaction] = ()
) -> tuple[int, bool]:
    """Aborts every open transaction of the write that no intent names, and fences its running query. Returns how many
    were aborted, and whether the query or job still runs, because it has opened other transactions than ``found`` has.

    Raises ``ExactlyOnceError`` for an intent, and for a transaction that another ledger may have decided, unless
    ``force``. With ``force`` the intent is completed and recorded as done even if rows are lost, and a replay skips
    them.
    """
    deadline = session.catch_up(deadline)
    listing = list_open(session, deadline)
    driver = session.init_driver(deadline)
    entries = dict(session.read_ledger(driver, deadline).entries)
    if not force:
        refuse_decided(session.settings.name, _intents(entries))
        refuse_foreign(session.settings.name, session.settings.topic, listing)
    driver = complete_intents(session, driver, entries, deadline, accepted_losses=entries).driver
    aborted = sweep(session, listing, driver, deadline)
    opened = {each.key for each in (*listing, *list_open(session, deadline))}
    return aborted, not opened <= {write.key for write in found}


def forget_done(session: Session, decided_before: int, deadline: float) -> list[Entry]:
    """Removes the name's entries that are done and were decided before this time (epoch ms), with their markers, and
    fences its running query. Returns what was removed. The driver's transaction proves that no other driver has decided
    a batch since the entries were read."""
    session.verify_ledger(deadline)
    driver = session.init_driver(deadline)
    removed = forgettable(session.read_ledger(driver, deadline).entries.values(), decided_before)
    if removed:
        place = session.ledger.partitions.marker_partition
        session.record_write(driver, removal_write(session.settings.name, removed, place), deadline)
    return removed


def forgettable(entries: Iterable[Entry], decided_before: int) -> list[Entry]:
    """The entries that are done and were decided before this time, epoch ms."""
    return [entry for entry in entries if entry.is_done and entry.decided_at < decided_before]


def refuse_decided(name: str, intents: Sequence[Entry]) -> None:
    """Raises ``ExactlyOnceError`` if there are intents."""
    if intents:
        raise ExactlyOnceError(
            f"Under the name {name} {' and '.join(map(str, intents))} is decided and not committed yet: commit it. "
            "--force commits its remaining transactions and gives up the lost rows."
        )


def refuse_foreign(name: str, ledger: str, transactions: Iterable[OpenTransaction]) -> None:
    """Raises ``ExactlyOnceError`` for a transaction that another ledger may have decided."""
    for transaction in transactions:
        if doubt := foreign_ledger(name, ledger, transaction):
            raise ExactlyOnceError(f"{transaction.transactional_id} is {doubt}. --force aborts it all the same.")


def foreign_ledger(name: str, ledger: str, transaction: OpenTransaction) -> str:
    """Why another ledger may have decided the transaction of this write, or "". A task prepares with a marker, so the
    ledger is part of its transaction, in a partition of the name. No ledger has decided a transaction without a marker.
    """
    topics, places = dict(transaction.topics), ledger_partitions(name, ledger)
    markers = ((places.partition,), (places.marker_partition,))
    others = [topic for topic, partitions in transaction.topics if partitions in markers]
    if ledger in topics or (topics and not others):
        return ""
    which = " or ".join(others) or "a topic that this principal may not describe"
    return f"not in {ledger}: another ledger, perhaps {which}, may have decided it; give that as --ledger-topic"


def _intents(entries: Mapping[str, Entry]) -> list[Entry]:
    return [entry for entry in entries.values() if entry.must_be_completed]


def _read_ledger(session: Session, deadline: float) -> tuple[dict[str, Mapping[str, Entry]], dict[str, str]]:
    """Name → its entries, and name → why they are unreadable."""
    entries: dict[str, Mapping[str, Entry]] = {}
    unreadable: dict[str, str] = {}
    for partition in range(PARTITIONS):
        partitions = LedgerPartitions(session.settings.topic, partition, partition)
        view = Ledger(session.cluster, "", partitions).read(deadline)
        for name in view.names:
            try:
                entries[name] = view.entries_of(name)
            except ExactlyOnceError as error:
                unreadable[name] = str(error)
    return entries, unreadable
