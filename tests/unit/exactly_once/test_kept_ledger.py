"""A ledger that a release has written is read by every later one: ``ledger-2.json``, which is never written again."""

import json
from base64 import b64decode
from pathlib import Path

import pytest

from spark_kafka_sink.exactly_once.ledger_format import raw_batches, read_key, shown_id
from spark_kafka_sink.exactly_once.ledger_view import LedgerView, MarkerOutcomes

FILE = Path(__file__).parent / "ledger-2.json"
NAMES = {each["name"]: each for each in json.loads(FILE.read_text())}


def shown(entry):
    """An entry as JSON, in words of its own: not those of the ledger's format."""
    return {
        "query": entry.query,
        "number": entry.number,
        "state": entry.state.name,
        "decided_at": entry.decided_at,
        "kind": entry.kind.value,
        "target": None if entry.target is None else [entry.target.topic],
        "marker_partition": entry.marker_partition,
        "markers_before": entry.old_marker_count,
        "schemas": [list(schema) for schema in entry.schemas],
        "topics": [[topic.name, shown_id(topic.id)] for topic in entry.topics],
        "tasks": [
            [share.rows.count, share.rows.checksum]
            if share.prepared is None
            else [share.rows.count, share.rows.checksum, *vars_of(share)]
            for share in entry.tasks
        ],
    }


def vars_of(share):
    prepared = share.prepared
    return [prepared.transactional_id, prepared.producer_id, prepared.epoch, prepared.end_txn_version, share.marker]


def view_of(name):
    view = LedgerView(name)
    view.apply(raw_batches(b64decode(NAMES[name]["entries_log"])))
    return view


@pytest.mark.parametrize("name", sorted(NAMES))
def test_what_a_release_wrote_is_read_as_it_read_it(name):
    view, kept = view_of(name), NAMES[name]
    assert {query: shown(entry) for query, entry in view.entries.items()} == kept["entries"]
    assert (sorted(view.removed), view.foreign) == (kept["removed"], 0)


@pytest.mark.parametrize("name", ["dead", "batch-2"])
def test_the_transactions_of_a_kept_intent_are_found_by_their_markers(name):
    """They were open when the driver died: their markers are in the log, and no control record."""
    (entry,) = view_of(name).entries.values()
    prepared = entry.prepared
    outcomes = MarkerOutcomes({task: (entry.tasks[task].marker, prepared[task]) for task in prepared})
    batches = raw_batches(b64decode(NAMES[name]["markers_log"]))
    outcomes.apply(
        [batch for batch in batches if batch.header.last_offset >= outcomes.next_offset],
        batches[-1].header.last_offset + 1,
    )
    assert (outcomes.decided, outcomes.committed) == (False, set())
    keys = [read_key(record.key) for batch in batches if not batch.header.is_control for record in batch.records()]
    assert {key.task for key in keys if key.name == name} >= set(prepared)
