"""Writes ``ledger-1.json``: a ledger of format version 1, as runs on a real Kafka have left it.

``python -m tests.unit.exactly_once.kept_ledger`` writes the file anew. Once a release has it, it is never written
again: ``test_kept_ledger.py`` holds later releases to reading it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.exactly_once.ledger import Ledger, PartitionLog
from spark_kafka_sink.exactly_once.ledger_format import shown_id
from spark_kafka_sink.exactly_once.operator_commands import forget_done
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import Entry, EntryState, RowSum, SchemaId, TaskShare, WriteKind
from spark_kafka_sink.testing import LocalKafka
from tests.unit.exactly_once.runs import LEDGER, TOPIC, Query, new_process

FILE = Path(__file__).parent / "ledger-1.json"
ROWS = [[b"a", b"b"], [], [b"c"]]
SCHEMAS = (SchemaId("key", "out-key", 1), SchemaId("value", "out-value", 2))
WIDE = 200


def die_after_the_intent(query: Query, number: int) -> None:
    plan = query.plan(number)
    reports = []
    for task, values in enumerate(ROWS):
        with query.open_task(plan, number, task) as write:
            if values:
                query.append(write, values)
            reports.append(write.prepare(SCHEMAS if values else ()))
    query.commit_killed_at(reports)


def write(servers: str) -> list[Query]:
    """A stream that is done, one whose driver died with its batch decided, a txnAppId, a batch job that is done and
    was forgotten, one that was decided, and a batch of many tasks."""
    stream, dead = Query(servers, "stream", "q1"), Query(servers, "dead", "q2")
    nightly = Query(servers, "txn-nightly", "nightly", WriteKind.VERSION, prefix="mine-nightly")
    job, torn = (Query(servers, name, name, WriteKind.VERSION) for name in ("batch-1", "batch-2"))
    for number in (0, 1):
        stream.run(number, ROWS)
    dead.run(0, [[b"x"]] * 4)
    die_after_the_intent(dead, 1)
    nightly.run(20250131, ROWS)
    job.run(0, ROWS)
    with closing(Session(job.settings, SystemClock())) as session:
        forget_done(session, 1 << 62, session.deadline(60_000))
    die_after_the_intent(torn, 0)
    wide = Query(servers, "wide", "q3")
    wide.run(0, [[b"y"]])
    with closing(Session(wide.settings, SystemClock())) as session:
        deadline = session.deadline(60_000)
        entry = session.ledger.read(deadline).entries["q3"]
        tasks = tuple(TaskShare(RowSum(task, task * 2**40)) for task in range(WIDE))
        entry = replace(entry, number=1, state=EntryState.DONE, tasks=tasks)
        session.record(session.init_driver(deadline), entry, deadline)
    return [stream, dead, nightly, job, torn, wide]


@dataclass(frozen=True)
class Kept:
    """A name's log, of its entries and of its markers, and what the release that wrote it read from it."""

    name: str
    entries_log: bytes
    markers_log: bytes
    entries: dict[str, dict[str, object]]
    removed: list[str]

    @property
    def fields(self) -> dict[str, object]:
        logs = {"entries_log": self.entries_log, "markers_log": self.markers_log}
        encoded = {key: b64encode(log).decode() for key, log in logs.items()}
        return {"name": self.name, **encoded, "entries": self.entries, "removed": self.removed}


def shown(entry: Entry) -> dict[str, object]:
    """An entry as JSON, in words of its own: not those of the ledger's format."""
    return {
        "query": entry.query,
        "number": entry.number,
        "state": entry.state.name,
        "decided_at": entry.decided_at,
        "target": None if entry.target is None else [entry.target.topic],
        "marker_partition": entry.marker_partition,
        "markers_before": entry.markers_before,
        "schemas": [list(schema) for schema in entry.schemas],
        "topics": [[topic.name, shown_id(topic.id)] for topic in entry.topics],
        "tasks": [
            [share.rows.count, share.rows.checksum]
            if share.prepared is None
            else [share.rows.count, share.rows.checksum, *vars_of(share)]
            for share in entry.tasks
        ],
    }


def vars_of(share: TaskShare) -> list[object]:
    prepared = share.prepared
    assert prepared is not None
    return [prepared.transactional_id, prepared.producer_id, prepared.epoch, prepared.end_txn_version, share.marker]


def kept(query: Query) -> Kept:
    with closing(Session(query.settings, SystemClock())) as session:
        deadline = session.deadline(60_000)
        places = session.ledger.partitions
        view = Ledger(session.cluster, query.name, places).read(deadline)
        logs = []
        for partition in (places.partition, places.marker_partition):
            log = PartitionLog(session.cluster, TopicPartition(LEDGER, partition))
            fetched = log.fetch(log.earliest(deadline), deadline)
            assert fetched is not None
            assert fetched.next_offset == fetched.high_watermark
            logs.append(b"".join(bytes(batch.data) for batch in fetched.batches))
        entries = {each: shown(entry) for each, entry in view.entries.items()}
        return Kept(query.name, *logs, entries, sorted(view.removed))


def main() -> None:
    with LocalKafka() as kafka:
        kafka.create_topic(TOPIC, 2)
        queries = write(kafka.bootstrap_servers)
        names = [kept(query).fields for query in queries]
        new_process()
    FILE.write_text("[\n" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in names) + "\n]\n")


if __name__ == "__main__":
    main()
