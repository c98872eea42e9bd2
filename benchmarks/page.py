"""Results as Markdown: what the pages of the documentation have between their markers, and tables of one part."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.measures import MEASURES, Verdict, median, paired, verdict
from benchmarks.model import Part, Result, Target
from benchmarks.parts import (
    CONFLUENT,
    FLOOR,
    ONCE,
    OURS,
    PARTS,
    ROW_BY_ROW,
    SEND,
    THEIRS,
    VALUE_SIZES,
)
from benchmarks.tables import Results, floor_table, group_sections, measured_when, table
from benchmarks.timeline import FIGURES as TIMELINE
from benchmarks.timeline import PHASES
from benchmarks.worker_memory import FIGURES as WORKER_MEMORY
from benchmarks.worker_memory import SETTINGS, SIZES

FEW, MANY = "pykafka, 4 partitions", "pykafka, 1,000 partitions"
"""Sides of the part ``memory``."""

_RELATIONS = {
    "at least ×": ("≥ {:.3g} ×", "{:.2f} ×"),
    "at most ×": ("≤ {:.3g} ×", "{:.2f} ×"),
    "at most +": ("≤ + {:.3g}", "{:+.3g}"),
    "at most": ("≤ {:.3g}", "{:.3g}"),
    "floor ÷": ("≥ {:.2f}", "{:.2f}"),
}

_BLOCK = re.compile(
    r"(?P<begin><!-- benchmarks: (?P<name>[a-z-]+) -->\n).*?(?P<end><!-- benchmarks end -->)", re.DOTALL
)


def fill(page: Path, results: Results) -> None:
    """Writes the results between the page's markers."""
    page.write_text(filled(page.read_text(), results))


def filled(text: str, results: Results) -> str:
    def block(found: re.Match[str]) -> str:
        return f"{found['begin']}\n{_BLOCKS[found['name']](results)}\n\n{found['end']}"

    return _BLOCK.sub(block, text)


def goals(results: Results) -> str:
    """Every figure that is wanted, and whether it is reached."""
    rows: list[list[str]] = []
    for part in PARTS:
        if part.name in results:
            judged = (verdict(results[part.name].runs, target) for target in part.targets)
            rows.extend([part.name, *_cells(each)] for each in judged if each is not None)
    return table(("part", "figure", "wanted", "median", "rounds", ""), rows)


def details(part: Part, result: Result) -> str:
    """Medians of every side of one part, and its rows per second by those of Spark's sink."""
    measures = [name for name in MEASURES if any(name in run.measures for run in result.runs)]
    rows = []
    optional = any(side.options for side in part.sides)
    compared = "rows_per_s" in measures and {OURS, THEIRS} <= {side.name for side in part.sides}
    for side in part.sides:
        figures = [median(result.runs, side.name, name) for name in measures]
        shown = ["" if f is None else MEASURES[m].shown.format(f) for m, f in zip(measures, figures, strict=True)]
        options = [_options(side.options)] if optional else []
        ratios = [_ratio_to_theirs(result, side.name)] if compared else []
        rows.append([side.name, *options, *ratios, *shown])
    headings = [*(["options"] if optional else []), *(["by the JVM sink's rows/s"] if compared else [])]
    return table(("", *headings, *(MEASURES[name].heading for name in measures)), rows)


def _ratio_to_theirs(result: Result, side: str) -> str:
    pairs = paired(result.runs, Target(side, "rows_per_s", "at least ×", 0, THEIRS))
    if side == THEIRS or not pairs:
        return ""
    ratios = [ours / theirs for ours, theirs in pairs]
    return f"{statistics.median(ratios):.2f} × ({min(ratios):.2f} – {max(ratios):.2f})"


def _cells(judged: Verdict) -> list[str]:
    target = judged.target
    wanted, got = _RELATIONS[target.relation]
    figure = f"{MEASURES[target.measure].heading} of {target.side}"
    if target.relation == "floor ÷":
        figure = f"the floor's share of what {target.side} takes"
    elif target.against is not None:
        figure += f", {'over' if target.relation == 'at most +' else 'by'} that of {target.against}"
    if target.ratio_of:
        figure += f", relative to {' by '.join(target.ratio_of)}"
    span = f"{got.format(judged.low)} – {got.format(judged.high)}" if judged.low != judged.high else ""
    mark = "reached" if judged.reached else "**missed**"
    return [figure, wanted.format(target.bound), got.format(judged.figure), span, mark]


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


# The blocks of the pages.


class _Figures:
    """Looks figures up for sentences; ``missing`` after one without results."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.missing = False

    def times(self, part: str, side: str = OURS, than: str = THEIRS, measure: str = "rows_per_s") -> str:
        """Median over the rounds of one side by another."""
        pairs = self._pairs(part, Target(side, measure, "at most ×", 0, than))
        return f"{statistics.median(ours / theirs for ours, theirs in pairs):.2g}"

    def median(self, part: str, side: str, measure: str) -> str:
        pairs = self._pairs(part, Target(side, measure, "at most", 0))
        return MEASURES[measure].shown.format(statistics.median(ours for ours, _ in pairs))

    def _pairs(self, part: str, target: Target) -> list[tuple[float, float]]:
        result = self._results.get(part)
        pairs = [] if result is None else paired(result.runs, target)
        self.missing |= not pairs
        return pairs or [(1.0, 1.0)]


def _expectations(results: Results) -> str:
    """What a user of something else can expect; without the rows that are not measured yet."""
    rows = []
    for row in _EXPECTED:
        figures = _Figures(results)
        cells = row(figures)
        if not figures.missing:
            rows.append(cells)
    return _plain_table(("compared with", "rows per second here, relative to it"), rows)


def _short(results: Results) -> str:
    """What README says of speed besides its table, the bad with the good."""
    f = _Figures(results)
    said = (
        f"With values of 100 bytes, the brokers use {_percent(f, 'broker_us')} of the CPU per row that they use for"
        f" Spark's own sink. A micro-batch of 1,000 rows in 10 tasks takes {_batch_ms(f, OURS)} here,"
        f" {_batch_ms(f, THEIRS)} with Spark's own sink. Where Python workers have to start first, a write takes"
        f" {f.median('first-write', OURS, 'seconds')} s."
    )
    return "" if f.missing else said


def _compared(results: Results) -> str:
    """README's table of three ways to write: Spark's own sink, a Python client by hand, this sink."""
    f = _Figures(results)
    confluent, ours = (f.median("python-clients", side, "peak_rss_mib") for side in (CONFLUENT, OURS))
    sizes = ", ".join(_measured_twice(f, size) for size in _LARGER)
    rows = [
        *_COMPARED_BY_WORDS,
        ["peak of a Python worker, one per core", "no Python", f"{confluent} MiB", f"{ours} MiB"],
        [
            "throughput of `pykafka` ÷ this column's, values of 100 bytes",
            f"{f.times('default')}×", f"{_than_confluent(f)}×", "1×",
        ],
        ["… with the same `batch.size` and `linger.ms`", f"{f.times('same-batches')}×", "not measured", "1×"],
        [f"… values of {', '.join(_LARGER)}", sizes, "not measured", "1×"],
        _MATURITY,
    ]  # fmt: skip
    return "" if f.missing else _plain_table(("", *_WAYS), rows)


_WAYS = ('Spark\'s `format("kafka")`', "confluent-kafka in `foreachPartition`", '`format("pykafka")`')
_COMPARED_BY_WORDS = [
    ["install", "jars that match your Spark and Scala", "`pip install`", "`pip install`"],
    ["streaming", "yes", "inside `foreachBatch`", "yes"],
    ["exactly-once", "no", "only if you write it", "yes, also for batch jobs"],
    ["schema registry", "no", "one row at a time, in Python", "Avro, Protobuf, JSON Schema"],
    ["reads from Kafka", "yes", "yes, outside of DataFrames", "no"],
]
_MATURITY = [
    "maturity",
    "part of Spark, in production for years",
    "the client is mature; the code around it is yours",
    "new: no production track record",
]


_LARGER = {"1 KB": "1k-values", "10 KB": "10k-values", "100 KB": "100k-values", "1 MB": "1m-values"}
"""Sizes that have a part of their own, beside their rows in growth-values."""


def _measured_twice(f: _Figures, size: str) -> str:
    """The lower and the higher one of a size's two ratios."""
    lower, higher = sorted((_by_size(f, size), f.times(_LARGER[size])), key=float)
    return f"{lower}×" if lower == higher else f"{lower} to {higher}×"


def _than_confluent(f: _Figures) -> str:
    return f.times("python-clients", than=CONFLUENT)


def _by_size(f: _Figures, size: str) -> str:
    return f.times("growth-values", f"{size}, {OURS}", f"{size}, {THEIRS}")


def _percent(f: _Figures, measure: str) -> str:
    """What a row costs, of what it costs with Spark's own sink."""
    return f"{100 * float(f.times('default', measure=measure)):.0f} %"


def _batch_ms(f: _Figures, side: str) -> str:
    return f"{f.median('micro-batches', side, 'add_batch_ms')} ms"


def _plain_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of words, aligned to the left."""
    heads = list(headings)
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, ["---"] * len(heads), *rows])


def _value_sizes(results: Results) -> str:
    """Rows per second and a worker's memory by the size of the values, next to Spark's own sink."""
    f = _Figures(results)
    rows = []
    for size in VALUE_SIZES:
        ours, theirs = f"{size}, {OURS}", f"{size}, {THEIRS}"
        rates = (f.median("growth-values", side, "rows_per_s") for side in (ours, theirs))
        rows.append([size, *rates, f"{_by_size(f, size)}×", f.median("growth-values", ours, "peak_rss_mib")])
    head = ("size of a value", "rows/s here", "rows/s of Spark's own sink", "relative", "peak MiB of a worker")
    return "" if f.missing else table(head, rows)


def _defaults(f: _Figures) -> list[str]:
    return [
        "Spark's own sink, values of 100 bytes",
        f"{f.times('default')}× ({f.times('unkeyed')}× without keys, {f.times('headers-and-topics')}× with headers and"
        " 20 topics)",
    ]


def _compression(f: _Figures) -> list[str]:
    codecs = ", ".join(f"{f.times(codec)}× with {codec}" for codec in ("lz4", "snappy", "zstd", "gzip"))
    return ["… compressed", codecs]


def _same_batches(f: _Figures) -> list[str]:
    return [
        "… `batch.size=262144` and `linger.ms=5` on both sides",
        f"{f.times('same-batches')}×, {f.times('same-batches-lz4')}× with lz4, {f.times('same-batches-zstd')}× with"
        " zstd",
    ]


def _tls(f: _Figures) -> list[str]:
    return ["… over TLS", f"{f.times('tls', f'{OURS}, TLS', f'{THEIRS}, TLS')}× ({f.times('tls')}× without it)"]


def _partitions(f: _Figures) -> list[str]:
    return [
        "… 1,000 partitions, with larger batches for Spark's sink, which times out with its defaults",
        f"{f.times('1000-partitions')}×",
    ]


def _to_avro(f: _Figures) -> list[str]:
    wide = f.times("growth-columns", f"200 columns, {OURS}", f"200 columns, {THEIRS}")
    return ["… with `to_avro` before it, 8 columns", f"{f.times('avro')}× ({wide}× with 200 columns)"]


def _in_foreach_partition(f: _Figures) -> list[str]:
    avro = f.times("avro-python", than=CONFLUENT)
    return ["confluent-kafka in `foreachPartition`", f"{_than_confluent(f)}× ({avro}× with its `AvroSerializer`)"]


def _send(f: _Figures) -> list[str]:
    unkeyed, keyed = (f.times(part, SEND, CONFLUENT) for part in ("send", "send-keyed"))
    return [
        "confluent-kafka's `produce()`, by `KafkaProducer.send()` without Spark",
        f"{unkeyed}× ({keyed}× with keys)",
    ]


def _row_by_row(f: _Figures) -> list[str]:
    avro, protobuf = (f.times("encoding", name, ROW_BY_ROW[name]) for name in ("Avro", "Protobuf"))
    return [
        "fastavro, Google's protobuf library, row by row, by `encode_avro`, `encode_protobuf`", f"{avro}×, {protobuf}×",
    ]  # fmt: skip


_EXPECTED = (
    _defaults, _compression, _same_batches, _tls, _partitions, _to_avro, _in_foreach_partition, _send, _row_by_row,
)  # fmt: skip


def _costs(results: Results) -> str:
    """What a row, a micro-batch and a start cost besides."""
    f = _Figures(results)
    said = (
        f"The broker uses {_percent(f, 'broker_us')} of the CPU per row that it uses for Spark's own sink. A"
        f" micro-batch of 1,000 rows in 10 tasks takes {_batch_ms(f, OURS)} (exactly-once: {_batch_ms(f, ONCE)});"
        f" Spark's own sink takes {_batch_ms(f, THEIRS)}."
    )
    return "" if f.missing else said


_WORKLOADS = {
    "only reads the rows, 100-byte values": ("memory", FLOOR),
    "100-byte values, 4 partitions": ("memory", FEW),
    "exactly-once": ("exactly-once-batch", ONCE),
    "zstd": ("zstd", OURS),
    "TLS": ("tls", f"{OURS}, TLS"),
    "20 million rows in one task": ("one-task", "20 M rows"),
    "two headers, 20 topics": ("headers-and-topics", OURS),
    "1,000 partitions": ("memory", MANY),
    "10,000 partitions, `kafka.buffer.memory` 256 MiB": (
        "growth-partitions",
        "10,000 partitions, pykafka, buffer.memory=256 MiB",
    ),
    "1 KB values": ("growth-values", "1 KB, pykafka"),
    "10 KB values": ("growth-values", "10 KB, pykafka"),
    "100 KB values": ("growth-values", "100 KB, pykafka"),
    "1 MB values": ("growth-values", "1 MB, pykafka"),
}
"""What a worker does → part and side with its peak."""


def _memory_per_core(results: Results) -> str:
    """The largest Python worker by workload, and what that makes for an executor."""
    f = _Figures(results)
    rows = [[what, f.median(*where, "peak_rss_mib")] for what, where in _WORKLOADS.items()]
    one = int(f.median(*_WORKLOADS["10 KB values"], "peak_rss_mib"))
    example = (
        f"For example, 4 cores that write values of 10 KB need 4 × {one} = {4 * one} MiB, in addition to the overhead"
        " that the JVM needs."
    )
    return "" if f.missing else f"{table(('workload', 'peak MiB of a worker'), rows)}\n\n{example}"


def _worker_memory(_: Results) -> str:
    """The largest Python worker by size of the values and by Spark, with Spark's limits of a batch."""
    figures: dict[str, dict[str, str | int]] = json.loads(WORKER_MEMORY.read_text())
    names = {name: f"`…{name.removeprefix('spark.sql.execution')}`" for name in SETTINGS}
    names |= {name: f"peak MiB of a worker, values of {name}" for name in SIZES}
    rows = [[text, *(str(column[name]) for column in figures.values())] for name, text in names.items()]
    return table(("", *(f"Spark {version}" for version in figures)), rows)


def _micro_batch(_: Results) -> str:
    """How long each phase of a micro-batch takes, in ms."""
    figures: dict[str, dict[str, dict[str, float]]] = json.loads(TIMELINE.read_text())
    rows = [[text, *(f"{side['medians'][name]:.1f}" for side in figures.values())] for name, text in PHASES.items()]
    return table(("ms", *figures), rows)


_STARTS = (OURS, ONCE, FLOOR, THEIRS)


def _start(results: Results) -> str:
    f = _Figures(results)
    ours, once, floor, theirs = (f.median("first-write", side, "seconds") for side in _STARTS)
    said = (
        f"Where no Python process runs yet, a write of 1,000 rows takes {ours} s (exactly-once: {once} s). Any Python"
        f" writer would need {floor} s of that. Spark's own sink, which runs no Python, takes {theirs} s."
    )
    return "" if f.missing else said


_BLOCKS: Mapping[str, Callable[[Results], str]] = {
    "short": _short,
    "compared": _compared,
    "value-sizes": _value_sizes,
    "expect": _expectations,
    "costs": _costs,
    "start": _start,
    "memory-per-core": _memory_per_core,
    "worker-memory": _worker_memory,
    "micro-batch": _micro_batch,
    "tables": group_sections,
    "floor": floor_table,
    "made": measured_when,
    "goals": goals,
}
