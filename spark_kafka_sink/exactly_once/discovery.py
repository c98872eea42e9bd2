"""What exactly-once writes have left in a cluster, without being told their names. Takes no fence: disturbs nobody."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger import Ledger
from spark_kafka_sink.exactly_once.ledger_format import read_key
from spark_kafka_sink.exactly_once.ledger_topic import PARTITIONS
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.raw_batch import RawBatch
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.sweep import OPEN, Listed, list_ids, list_matching
from spark_kafka_sink.exactly_once.values import APPLICATION, Entry, EntryState, LedgerPartitions, driver_id

_TASK: Final = re.compile(r"(?P<prefix>.+)-\d+(\.\d+)?")
_FRESH: Final = "-[0-9a-f]{32}"
_DRIVER: Final = driver_id("")


@dataclass(frozen=True, slots=True)
class FoundWrite:
    """A write: what the ledger says of it, and which of its tasks' transactions are open.

    ``prefix``: what the ids begin with that a command is to end. ``entries``: query → its last entry. ``unreadable``:
    why it cannot be read. ``listed``: what is open; of a txnAppId under any prefix, as long as no command names one.
    """

    name: str
    prefix: str
    entries: Mapping[str, Entry]
    listed: tuple[Listed, ...]
    unreadable: str | None = None

    @property
    def kind(self) -> str:
        if _application(self.name) is not None:
            return "txnAppId"
        return "batch job" if re.fullmatch(".+" + _FRESH, self.name) else "stream"

    @property
    def intents(self) -> list[Entry]:
        """Decided, and not known to be carried out."""
        return [entry for entry in self.entries.values() if entry.state is EntryState.INTENT]

    @property
    def undecided(self) -> list[Listed]:
        """Open, and named by no intent."""
        return [each for each in self.listed if self.intent_of(each) is None]

    def intent_of(self, listed: Listed) -> Entry | None:
        """The decided batch that this transaction is part of; None for one that nothing was decided about."""
        identity = listed.transactional_id, listed.producer_id, listed.epoch
        for entry in self.intents:
            prepared = (share.prepared for share in entry.tasks if share.prepared is not None)
            if any((each.transactional_id, each.producer_id, each.epoch) == identity for each in prepared):
                return entry
        return None

    def under(self, given: str) -> FoundWrite | None:
        """What is left of it under its name, or under this transactionalIdPrefix; None when it is of neither.

        Of a txnAppId it is what begins with exactly that: an id that only ends in its name may be anybody's.
        """
        prefix = self.name
        if self.name != given and not re.fullmatch(re.escape(given) + _FRESH, self.name):
            prefix = f"{given}-{_application(self.name)}"
            if _owner(prefix, (self.name,)) is None or prefix not in self._prefixes:
                return None
        return replace(
            self, prefix=prefix, listed=tuple(each for each in self.listed if _prefix(each.transactional_id) == prefix)
        )

    @property
    def _prefixes(self) -> set[str | None]:
        prepared = [share.prepared for entry in self.intents for share in entry.tasks]
        decided = [each.transactional_id for each in prepared if each is not None]
        return {_prefix(each) for each in (*decided, *(each.transactional_id for each in self.listed))}


class AllNames(LedgerView):
    """A view for each name with a record in one partition of the ledger."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.views: dict[str, LedgerView] = {}
        self._pending: dict[int, set[str]] = {}

    def apply(self, batches: Iterable[RawBatch]) -> None:
        for batch in batches:
            if batch.is_control:
                names = self._pending.pop(batch.producer_id, set())
            elif not batch.is_transactional:
                super().apply([batch])
                continue
            else:
                keys = [read_key(record.key) for record in self.records(batch)]
                self.foreign += sum(key is None for key in keys)
                names = {key.name for key in keys if key is not None}
                self._pending.setdefault(batch.producer_id, set()).update(names)
            for name in names:
                self.views.setdefault(name, LedgerView(name)).apply([batch])


def discover(session: Session, deadline: float) -> list[FoundWrite]:
    """Every write that has an entry in the ledger or an open transaction, by name; whatever name ``session`` has."""
    ledger, unreadable = _read_ledger(session, deadline)
    drivers = {each.removesuffix(_DRIVER) for each in list_ids(session.cluster, deadline) if each.endswith(_DRIVER)}
    names = drivers | ledger.keys() | unreadable.keys()
    listed = list_matching(session.cluster, _TASK, (OPEN,), deadline).transactions
    opened: dict[str, list[Listed]] = {}
    for each in listed:
        if (name := _owner(_prefix(each.transactional_id), names)) is not None:
            opened.setdefault(name, []).append(each)
    found = []
    for name in sorted(names):
        entries = ledger.get(name, {})
        ours = tuple(sorted(opened.get(name, ())))
        if entries or ours or name in unreadable:
            found.append(FoundWrite(name, name, entries, ours, unreadable.get(name)))
    return found


def _read_ledger(session: Session, deadline: float) -> tuple[dict[str, Mapping[str, Entry]], dict[str, str]]:
    entries: dict[str, Mapping[str, Entry]] = {}
    unreadable: dict[str, str] = {}
    for partition in range(PARTITIONS):
        ledger = Ledger(session.cluster, "", LedgerPartitions(session.settings.topic, partition, partition), AllNames)
        every = ledger.read(deadline)
        assert isinstance(every, AllNames)
        for name, view in every.views.items():
            try:
                entries[name] = view.entries
            except ExactlyOnceError as error:
                unreadable[name] = str(error)
    return entries, unreadable


def _prefix(transactional_id: str) -> str | None:
    """None for an id that no task has."""
    match = _TASK.fullmatch(transactional_id)
    return match["prefix"] if match is not None and transactional_id.isprintable() else None


def _owner(prefix: str | None, names: Collection[str]) -> str | None:
    """Whose tasks have ids that begin with ``prefix``; None for those of other applications."""
    if prefix is None or prefix in names:
        return prefix
    applications = ((name, _application(name)) for name in names)
    ours = [name for name, application in applications if application and prefix.endswith(f"-{application}")]
    return max(ours, key=len, default=None)


def _application(name: str) -> str | None:
    return name.removeprefix(APPLICATION) if name.startswith(APPLICATION) else None
