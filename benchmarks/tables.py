"""The tables of the page of benchmarks, one for each group of parts, and when they were measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measures import MEASURES, median, paired, shares_of_the_floor
from benchmarks.model import Part, Result, Target
from benchmarks.parts import BY_NAME, FLOOR, OURS, THEIRS

Results = Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class Group:
    """Parts that share a table. ``notes``: what their names do not say. ``measures``: the table's columns."""

    title: str
    parts: tuple[str, ...]
    notes: str
    measures: tuple[str, ...]
    plots: tuple[str, ...] = ()
    in_pairs: bool = False
    """A row has this sink's figures, and those of Spark's sink for the same work."""


_GROWTH = tuple(f"growth-{what}" for what in ("partitions", "topics", "values", "columns", "tasks", "cluster"))

GROUPS = (
    Group(
        "Next to Spark's own sink",
        (
            "default", "unkeyed", "1k-values", "10k-values", "100k-values", "1m-values", "headers-and-topics",
            "lz4", "snappy", "zstd", "gzip", "same-batches", "same-batches-lz4", "same-batches-zstd",
            "1000-partitions", "tls", "avro", "slow-broker",
        ),
        "`headers-and-topics`: two headers a row, 20 topics. `same-batches`: `batch.size=262144` and `linger.ms=5` on "
        "both sides. `1000-partitions`: Spark's sink has `batch.size=65536` and `linger.ms=5`, because it times out "
        "with its defaults. `tls`: TLS 1.3 with TLS_AES_256_GCM_SHA384. `avro`: the 8 columns, Spark's sink behind "
        "`to_avro`. `slow-broker`: a line of 5 MB/s, new Python workers.",
        ("cpu_us", "spark_us", "workers_us", "broker_us", "peak_rss_mib"),
        in_pairs=True,
    ),
    Group(
        "How cost grows",
        _GROWTH,
        "With 1,000 partitions or 200 topics, Spark's sink has larger batches, as above; with 10,000 partitions it "
        "times out. `growth-columns`: Avro, long and string in turn, each half null. `growth-cluster`: a "
        "standalone cluster of two workers with a core each.",
        ("cpu_us", "workers_us"),
        _GROWTH,
        in_pairs=True,
    ),
    Group(
        "Python clients, exactly-once, memory",
        (
            "python-clients", "avro-python", "exactly-once-batch", "write-kafka", "memory", "memory-10k", "one-task",
        ),
        "The other Python clients run in `foreachPartition`; in `avro-python` with confluent-kafka's `AvroSerializer`. "
        "`memory`, `memory-10k` and `one-task` run in new Python workers.",
        ("rows_per_s", "cpu_us", "workers_us", "peak_rss_mib"),
    ),
    Group(
        "Size of batches",
        ("batch-sizes", "small-messages"),
        "`batch-sizes`: by size of values and `batch.size`. `small-messages`: by the topic's `max.message.bytes`.",
        ("rows_per_s", "cpu_us", "workers_us"),
        ("batch-sizes", "small-messages"),
    ),
    Group(
        "Micro-batches",
        ("micro-batches", "driver-check", "growth-stream"),
        "`micro-batches`: 1,000 rows in 10 tasks. `driver-check`: 1,000 rows in one task. `growth-stream`: 10 rows in "
        "one task, by the number of the micro-batch.",
        ("add_batch_ms", "add_batch_p90_ms", "rss_mib"),
        ("growth-stream",),
    ),
    Group(
        "Producers without Spark",
        ("send", "send-keyed", "send-callbacks"),
        "`send` is without keys, the others with keys of 8 bytes.",
        ("rows_per_s", "client_us"),
    ),
    Group(
        "Latency",
        ("latency", "real-time"),
        "`latency`: from send to acknowledgement, 10,000 records a second; `linger.ms` is 0 or 5. `real-time`: from "
        "produce to poll, 10 rows a second from topic to topic, after the first 50 rows.",
        ("p50_ms", "p99_ms"),
    ),
    Group(
        "Encoding and dead letters",
        ("encoding", "encoding-nested", "encoding-wide", "encoding-small-chunks", "dead-letters"),
        "In one process without Kafka, on one core. `encoding` and `encoding-small-chunks`: the 8 columns. "
        "`encoding-nested`: a struct of 4 longs, an array of 5 longs, a map of 3 strings. `encoding-wide`: columns "
        "that are half null. `dead-letters`: without `deadLetterTopic`, and with it.",
        ("client_us",),
    ),
    Group(
        "Commit",
        ("exactly-once-commit",),
        "`exactly-once-commit`: 200 prepared transactions.",
        ("commit_ms",),
    ),
    Group(
        "Where the CPU of a Python worker goes",
        ("profile", "profile-1k", "profile-10k"),
        "µs per row, with values of 100 bytes, 1 KB and 10 KB.",
        ("workers_us", "reading_us", "append_us", "partition_us", "encode_us", "crc_us", "sender_us", "syscall_us"),
    ),
)  # fmt: skip

_OF_BOTH = ("cpu_us", "spark_us", "broker_us")
"""Figures that a row of a pair has of both sinks; the rest are figures of Python workers, which Spark's sink lacks."""


def group_sections(results: Results) -> str:
    """A section for each group: what its parts do, and their table."""
    return "\n\n".join(_section(group, results) for group in GROUPS)


def _section(group: Group, results: Results) -> str:
    parts = [(BY_NAME[name], results[name]) for name in group.parts if name in results]
    shown = _pairs(group.measures, parts) if group.in_pairs else _sides(group.measures, parts)
    plots = (f"![{name}](img/benchmark-{name}.svg)" for name in group.plots)
    return "\n\n".join((f"### {group.title}", group.notes, shown, *plots))


def _sides(measures: Sequence[str], parts: Iterable[tuple[Part, Result]]) -> str:
    """A row for each side of each part."""
    rows = [
        [_label(part, side.name), *(_figure(result, side.name, name) for name in measures)]
        for part, result in parts
        for side in part.sides
    ]
    return table(("part", *(MEASURES[name].heading for name in measures)), rows)


def _pairs(measures: Sequence[str], parts: Iterable[tuple[Part, Result]]) -> str:
    """A row for each side of this sink, beside the side of Spark's sink that does the same."""
    rows = []
    for part, result in parts:
        theirs = {_work(side.name): side.name for side in part.sides if THEIRS in side.name}
        in_floor_table = () if part.fresh_workers else (FLOOR,)
        ours = (side.name for side in part.sides if THEIRS not in side.name and side.name not in in_floor_table)
        for side in ours:
            beside = theirs.get(_work(side.replace(FLOOR, OURS)), "")
            row = [_label(part, _work(side)), _ratio(result, side, beside), _figure(result, side, "rows_per_s")]
            for name in measures:
                both = (_figure(result, beside, name) if name in _OF_BOTH else "", _figure(result, side, name))
                row.append("/".join(filter(None, both)))
            rows.append(row)
    return table(("part", "ratio", "rows/s", *(MEASURES[name].heading for name in measures)), rows)


def floor_table(results: Results) -> str:
    """The parts in which a writer that does nothing ran beside: its floor, and the floor's share."""
    rows = []
    for name, result in results.items():
        shares = shares_of_the_floor(result.runs, OURS, FLOOR)
        if shares and not BY_NAME[name].fresh_workers:
            parts = [_figure(result, FLOOR, "spark_us"), _figure(result, FLOOR, "workers_us")]
            share = f"{statistics.median(shares):.2f} ({min(shares):.2f}–{max(shares):.2f})"
            rows.append([name, *parts, *(_figure(result, OURS, each) for each in ("broker_us", "cpu_us")), share])
    return table(("part", "Spark JVM", "do-nothing worker", "broker", "all, here", "floor ÷ here"), rows)


def _work(side: str) -> str:
    """The name of a side without the writer: what it does."""
    return ", ".join(word for word in side.split(", ") if word not in (OURS, THEIRS))


def _label(part: Part, side: str) -> str:
    return ": ".join(filter(None, (part.name, side)))


def _figure(result: Result, side: str, measure: str) -> str:
    figure = median(result.runs, side, measure)
    return "" if figure is None else MEASURES[measure].shown.format(figure)


def _ratio(result: Result, side: str, than: str) -> str:
    pairs = paired(result.runs, Target(side, "rows_per_s", "at least ×", 0, than)) if than else []
    if not pairs:
        return ""
    ratios = [ours / theirs for ours, theirs in pairs]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of figures: all columns but the first are aligned to the right."""
    heads = list(headings)
    head, *body = (f"| {' | '.join(line)} |" for line in (heads, *rows))
    return "\n".join((head, f"|---|{'---:|' * (len(heads) - 1)}", *body))


_FACTS = {
    "machine", "system", "python", "java", "kafka broker", "kafka-clients", "pyspark", "pyarrow", "confluent-kafka",
    "kafka-python", "aiokafka", "fastavro", "protobuf",
}  # fmt: skip
"""What the page says of a session's environment; results.json has the rest."""


def measured_when(results: Results) -> str:
    """A line for each day and commit, and one for each machine; the most frequent first, in full."""
    by_session: dict[tuple[str, str], list[str]] = {}
    by_machine: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, result in results.items():
        for session in result.sessions:
            by_session.setdefault((session.at[:10], session.environment["commit"]), []).append(name)
        environment = result.sessions[-1].environment
        facts = tuple(fact for fact in environment.items() if fact[0] in _FACTS)
        by_machine.setdefault(facts, []).append(environment["commit"])
    sessions = sorted(by_session.items(), key=lambda item: -len(item[1]))
    lines = [
        f"- {day}, commit {commit}: {_parts(names) if at else _most(names, results)}."
        for at, ((day, commit), names) in enumerate(sessions)
    ]
    machines = sorted(by_machine.items(), key=lambda item: -len(item[1]))
    for at, (facts, commits) in enumerate(machines):
        differing = [fact for fact in facts if at == 0 or fact not in machines[0][0]]
        shown = ", ".join(" ".join(fact) for fact in differing)
        lines.append(f"- On: {shown}." if at == 0 else f"- Commit {', '.join(dict.fromkeys(commits))}: {shown}.")
    return "\n".join(lines)


def _parts(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def _most(names: Sequence[str], results: Results) -> str:
    return "all parts" if set(names) == results.keys() else "all parts but those below"
