"""What an operator may do about one write: finish what was decided, abort what was not."""

from __future__ import annotations

from spark_kafka_sink.exactly_once.complete import finish
from spark_kafka_sink.exactly_once.decisions import done
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, LostRowsError
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.sweep import list_open, sweep
from spark_kafka_sink.exactly_once.values import Entry, EntryState


def commit_decided(session: Session, deadline: float) -> list[Entry]:
    """Carries out every intent that stands; a query that runs under the name is fenced. Raises ``LostRowsError`` in
    the end when transactions of some are gone: then only their replay can bring the rows back."""
    driver = session.init_driver(deadline)
    finished: list[Entry] = []
    torn: list[tuple[Entry, frozenset[int]]] = []
    for entry in list(session.read_ledger(driver, deadline).entries.values()):
        if entry.state is EntryState.DONE:
            continue
        lost = finish(session, entry, deadline)
        if lost:
            torn.append((entry, lost))
        else:
            driver = session.record(driver, done(entry), deadline)
            finished.append(entry)
    if torn:
        raise LostRowsError(_gone(session, torn, finished))
    return finished


def abort_undecided(session: Session, force: bool, deadline: float) -> int:
    """Aborts every open transaction of the name that no intent names; says how many. A running query is fenced.

    While an intent stands it is refused, unless forced: then what is left of the decided batch is committed, and rows
    of it that are gone are given up: the ledger says done, and a replay skips them.
    """
    listing = list_open(session, deadline)
    driver = session.init_driver(deadline)
    entries = session.read_ledger(driver, deadline).entries
    standing = [entry for entry in entries.values() if entry.state is EntryState.INTENT]
    if not force:
        refuse_decided(session.settings.name, standing)
    for entry in standing:
        finish(session, entry, deadline)
        driver = session.record(driver, done(entry), deadline)
    return sweep(session, listing, driver, deadline)


def refuse_decided(name: str, standing: list[Entry]) -> None:
    """Raises ``ExactlyOnceError`` when an intent stands."""
    if standing:
        raise ExactlyOnceError(
            f"Under the name {name} {_named(standing)} is decided and not carried out: commit it. "
            "--force commits what is left of it and gives up the rows that are gone."
        )


def _named(entries: list[Entry]) -> str:
    return " and ".join(f"batch {entry.number} of {entry.query}" for entry in entries)


def _gone(session: Session, torn: list[tuple[Entry, frozenset[int]]], finished: list[Entry]) -> str:
    tasks = "; ".join(f"{_named([entry])}: tasks {', '.join(map(str, sorted(lost)))}" for entry, lost in torn)
    told = f" Committed: {_named(finished)}." if finished else ""
    return (
        f"Rows are gone from Kafka (name {session.settings.name}; {tasks}); the other tasks' are committed. Start "
        "the query with its checkpoint, or rerun the job with its txnVersion: it writes the missing rows again. "
        f"`transactions abort --force` gives them up.{told}"
    )
