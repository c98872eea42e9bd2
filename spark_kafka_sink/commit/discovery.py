"""What exactly-once writes have left in a cluster, without being told their names. Takes no fence: disturbs nobody."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.commit.errors import ExactlyOnceError
from spark_kafka_sink.commit.format import read_key
from spark_kafka_sink.commit.ledger import Ledger
from spark_kafka_sink.commit.ledger_topic import PARTITIONS
from spark_kafka_sink.commit.ledger_view import LedgerView
from spark_kafka_sink.commit.raw_batch import RawBatch
from spark_kafka_sink.commit.session import Session
from spark_kafka_sink.commit.sweeping import OPEN, Listed, list_ids, list_matching
from spark_kafka_sink.commit.values import APPLICATION, Entry, LedgerPlace, Stage, driver_id

_TASK: Final = re.compile(r"(?P<prefix>.+)-\d+(\.\d+)?")
_FRESH: Final = "-[0-9a-f]{32}"
_DRIVER: Final = driver_id("")


@dataclass(frozen=True, slots=True)
class Found:
    """A write: what the ledger says of it, and which of its tasks' transactions are open.

    ``prefixes``: what the ids of these begin with; a txnAppId has more than one when its runs were given different
    ones. ``entries``: query → its last entry. ``listed``: open. ``unreadable``:
    why its entry cannot be read.
    """

    name: str
    prefixes: tuple[str, ...]
    entries: Mapping[str, Entry]
    listed: tuple[Listed, ...]
    unreadable: str | None = None

    @property
    def kind(self) -> str:
        if _application(self.name) is not None:
            return "txnAppId"
        return "batch job" if re.fullmatch(".+" + _FRESH, self.name) else "stream"

    @property
    def standing(self) -> list[Entry]:
        """Decided, and not known to be carried out."""
        return [entry for entry in self.entries.values() if entry.stage is Stage.INTENT]

    @property
    def undecided(self) -> list[Listed]:
        """Open, and named by no intent."""
        return [each for each in self.listed if self.intent_of(each) is None]

    def intent_of(self, listed: Listed) -> Entry | None:
        """The decided batch that this transaction is part of; None for one that nothing was decided about."""
        identity = listed.transactional_id, listed.producer_id, listed.epoch
        for entry in self.standing:
            prepared = (share.prepared for share in entry.tasks if share.prepared is not None)
            if any((each.transactional_id, each.producer_id, each.epoch) == identity for each in prepared):
                return entry
        return None

    def was_given(self, prefix: str) -> bool:
        """Whether ``prefix`` is its transactionalIdPrefix, or its name."""
        application = _application(self.name)
        if application is not None and f"{prefix}-{application}" in self.prefixes:
            return True
        return self.name == prefix or re.fullmatch(re.escape(prefix) + _FRESH, self.name) is not None


class EveryName(LedgerView):
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


def discover(session: Session, deadline: float) -> list[Found]:
    """Every write that has an entry in the ledger or an open transaction, by name; whatever name ``session`` has."""
    ledger, unreadable = _read_ledger(session, deadline)
    drivers = {each.removesuffix(_DRIVER) for each in list_ids(session.cluster, deadline) if each.endswith(_DRIVER)}
    names = drivers | ledger.keys() | unreadable.keys()
    listed = list_matching(session.cluster, _TASK, (OPEN,), deadline).transactions
    opened: dict[str, list[Listed]] = {}
    for each in listed:
        if (name := _owner(_prefix(each), names)) is not None:
            opened.setdefault(name, []).append(each)
    found = []
    for name in sorted(names):
        entries = ledger.get(name, {})
        ours = tuple(sorted(opened.get(name, ())))
        if entries or ours or name in unreadable:
            prefixes = tuple(sorted({_prefix(each) for each in ours})) or (name,)
            found.append(Found(name, prefixes, entries, ours, unreadable.get(name)))
    return found


def _read_ledger(session: Session, deadline: float) -> tuple[dict[str, Mapping[str, Entry]], dict[str, str]]:
    entries: dict[str, Mapping[str, Entry]] = {}
    unreadable: dict[str, str] = {}
    for partition in range(PARTITIONS):
        ledger = Ledger(session.cluster, "", LedgerPlace(session.settings.topic, partition, partition), EveryName)
        every = ledger.read(deadline)
        assert isinstance(every, EveryName)
        for name, view in every.views.items():
            try:
                entries[name] = view.entries
            except ExactlyOnceError as error:
                unreadable[name] = str(error)
    return entries, unreadable


def _prefix(task: Listed) -> str:
    match = _TASK.fullmatch(task.transactional_id)
    assert match is not None
    return match["prefix"]


def _owner(prefix: str, names: Collection[str]) -> str | None:
    """Whose tasks have ids that begin with ``prefix``; None for those of other applications."""
    if prefix in names:
        return prefix
    applications = (name for name in names if prefix.endswith(f"-{_application(name)}"))
    return max(applications, key=len, default=None)


def _application(name: str) -> str | None:
    return name.removeprefix(APPLICATION) if name.startswith(APPLICATION) else None
