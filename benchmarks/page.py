"""Results as Markdown: what the pages of the documentation have between their markers, and tables of one part."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.measures import MEASURES, Verdict, median, paired, verdict
from benchmarks.model import Part, Result, Target
from benchmarks.parts import (
    BY_NAME,
    CONFLUENT,
    FLOOR,
    GROUPS,
    ONCE,
    OURS,
    PARTS,
    ROW_BY_ROW,
    SEND,
    THEIRS,
    VALUE_SIZES,
)

Results = Mapping[str, Result]

FEW, MANY = "pykafka, 4 partitions", "pykafka, 1,000 partitions"
"""Sides of the part ``memory``."""

_RELATIONS = {
    "at least ×": ("≥ {:.3g} ×", "{:.2f} ×"),
    "at most ×": ("≤ {:.3g} ×", "{:.2f} ×"),
    "at most +": ("≤ + {:.3g}", "{:+.3g}"),
    "at most": ("≤ {:.3g}", "{:.3g}"),
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


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(headings)
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    if target.against is not None:
        figure += f", {'over' if target.relation == 'at most +' else 'by'} that of {target.against}"
    if target.ratio_of:
        figure += f", relative to {' by '.join(target.ratio_of)}"
    span = f"{got.format(judged.low)} – {got.format(judged.high)}" if judged.low != judged.high else ""
    mark = "reached" if judged.reached else "**missed**"
    return [figure, wanted.format(target.bound), got.format(judged.figure), span, mark]


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


# The blocks of the pages.


def _section(part: Part, result: Result, image: bool = False) -> str:
    plot = f"![{part.name}](img/benchmark-{part.name}.svg)\n\n" if image else ""
    return f"### {part.name}\n\n{part.what[0].upper()}{part.what[1:]}.\n\n{plot}{details(part, result)}"


def _tables(results: Results) -> str:
    apart = {*GROUPS["growth"], *GROUPS["profiles"]}
    return "\n\n".join(_section(BY_NAME[name], each) for name, each in results.items() if name not in apart)


def _growth(results: Results) -> str:
    return "\n\n".join(_section(BY_NAME[name], results[name], True) for name in GROUPS["growth"] if name in results)


def _profiles(results: Results) -> str:
    return "\n\n".join(_section(BY_NAME[name], results[name]) for name in GROUPS["profiles"] if name in results)


def _made(results: Results) -> str:
    """When and by which commit, one line for results of one day and commit; and on what, one for each machine."""
    made: dict[tuple[str, str], list[str]] = {}
    for name, result in results.items():
        for session in result.sessions:
            made.setdefault((session.at[:10], session.environment["commit"]), []).append(name)
    lines = []
    for (day, commit), names in made.items():
        parts = "all parts" if set(names) == results.keys() else ", ".join(dict.fromkeys(names))
        lines.append(f"- {day}, commit {commit}: {parts}.")
    surroundings: dict[str, list[str]] = {}
    for name, result in results.items():
        described = result.sessions[-1].environment
        facts = ", ".join(f"{key} {value}" for key, value in described.items() if key not in ("commit", "load"))
        surroundings.setdefault(facts, []).append(name)
    for facts, names in surroundings.items():
        where = "" if len(surroundings) == 1 else f"{', '.join(names)}: "
        lines.append(f"- {where}{facts if where else facts[0].upper() + facts[1:]}.")
    return "\n".join(lines)


class _Figures:
    """Looks figures up for sentences; ``missing`` after one without results."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.missing = False

    def times(self, part: str, side: str = OURS, than: str = THEIRS, measure: str = "rows_per_s") -> str:
        """Median over the rounds of one side by another."""
        pairs = self._pairs(part, Target(side, measure, "at most ×", 0, than))
        return f"{statistics.median(ours / theirs for ours, theirs in pairs):.2g}"

    def more(self, part: str, side: str, than: str, measure: str) -> str:
        pairs = self._pairs(part, Target(side, measure, "at most +", 0, than))
        return f"{statistics.median(ours - theirs for ours, theirs in pairs):.0f}"

    def median(self, part: str, side: str, measure: str) -> str:
        pairs = self._pairs(part, Target(side, measure, "at most", 0))
        return MEASURES[measure].shown.format(statistics.median(ours for ours, _ in pairs))

    def _pairs(self, part: str, target: Target) -> list[tuple[float, float]]:
        result = self._results.get(part)
        pairs = [] if result is None else paired(result.runs, target)
        self.missing |= not pairs
        return pairs or [(1.0, 1.0)]


def _expectations(results: Results) -> str:
    """What a user of something else can expect; without the lines that are not measured yet."""
    lines = []
    for line in (
        _defaults,
        _compression,
        _tls,
        _python_clients,
        _avro,
        _encoding,
        _partitions,
        _micro_batches,
        _memory,
    ):
        figures = _Figures(results)
        said = line(figures)
        if not figures.missing:
            lines.append(f"- {said}")
    return "\n".join(lines)


def _short(results: Results) -> str:
    """What README says of speed besides its table, the bad with the good."""
    f = _Figures(results)
    said = (
        f"With values of 100 bytes, the brokers use {_percent(f, 'broker_us')} of the CPU per row that they use for"
        f" Spark's own sink. A micro-batch of 1,000 rows in 10 tasks takes {_batch_ms(f, OURS)} instead of"
        f" {_batch_ms(f, THEIRS)}, and the first one of an application takes {_seconds(f, 'first_batch_ms')}, because"
        " Python workers have to start."
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
            "throughput of `pykafka` ÷ this one's, values of 100 bytes",
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


def _seconds(f: _Figures, measure: str) -> str:
    """A time of the part of micro-batches."""
    return f"{float(f.median('micro-batches', OURS, measure)) / 1000:.1f} s"


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


def _slower(f: _Figures) -> str:
    """A sentence on the sizes of values with which Spark's own sink is faster."""
    ratios = {size: _by_size(f, size) for size in VALUE_SIZES}
    slower = [f"{ratio} times with values of {size}" for size, ratio in ratios.items() if float(ratio) < 1]
    return f"This sink is slower with large values: {', '.join(slower)}. " if slower else ""


def _defaults(f: _Figures) -> str:
    return (
        f"**Spark's own sink**, default options on both sides: {f.times('default')} times its rows per second with"
        f" values of 100 bytes ({f.times('unkeyed')} without keys), {f.times('1k-values')} with 1 KB,"
        f" {f.times('10k-values')} with 10 KB, {f.times('headers-and-topics')} with headers and 20 topics. The"
        f" broker uses {_percent(f, 'broker_us')} of the CPU per row that it uses for Spark's own sink."
        f" {_slower(f)}".rstrip()
    )


def _compression(f: _Figures) -> str:
    return (
        f"**Spark's own sink, compressed**: {f.times('lz4')} times its rows per second with lz4, {f.times('snappy')}"
        f" with snappy, {f.times('zstd')} with zstd, {f.times('gzip')} with gzip. With `batch.size=262144` and"
        f" `linger.ms=5` on both sides, {f.times('same-batches')} times without compression,"
        f" {f.times('same-batches-lz4')} with lz4 and {f.times('same-batches-zstd')} with zstd."
    )


def _tls(f: _Figures) -> str:
    ours, theirs = f"{OURS}, TLS", f"{THEIRS}, TLS"
    return (
        f"**Over TLS**: {f.times('tls', ours, theirs)} times the rows per second of Spark's own sink over TLS"
        f" ({f.times('tls')} times without TLS on either side)."
    )


def _python_clients(f: _Figures) -> str:
    return (
        f"**confluent-kafka in `foreachPartition`**: {f.times('python-clients', than=CONFLUENT)} times its rows per"
        f" second. Without Spark, `KafkaProducer.send()` sends {f.times('send', SEND, CONFLUENT)} times the records"
        f" per second of confluent-kafka's `produce()` (with keys: {f.times('send-keyed', SEND, CONFLUENT)} times)."
    )


def _avro(f: _Figures) -> str:
    wide = f.times("growth-columns", f"200 columns, {OURS}", f"200 columns, {THEIRS}")
    return (
        f"**Avro with a schema registry**, 8 columns: {f.times('avro')} times the rows per second of `to_avro` in front"
        f" of Spark's own sink (with 200 columns {wide} times), {f.times('avro-python', than=CONFLUENT)} times those of"
        " confluent-kafka's `AvroSerializer` in `foreachPartition`."
    )


def _encoding(f: _Figures) -> str:
    return (
        f"**`encode_avro`** takes {f.median('encoding', 'Avro', 'client_us')} µs of CPU for a row of 8 columns,"
        f" {f.times('encoding', 'Avro', ROW_BY_ROW['Avro'])} times as fast as fastavro row by row."
        f" **`encode_protobuf`** takes {f.median('encoding', 'Protobuf', 'client_us')} µs,"
        f" {f.times('encoding', 'Protobuf', ROW_BY_ROW['Protobuf'])} times as fast as Google's library row by row."
    )


def _partitions(f: _Figures) -> str:
    return (
        f"**1,000 partitions**: {f.times('1000-partitions')} times the rows per second of Spark's own sink, which was"
        " given larger batches: with its defaults it times out."
    )


def _micro_batches(f: _Figures) -> str:
    return (
        f"**A micro-batch** of 1,000 rows in 10 tasks takes {f.median('micro-batches', OURS, 'add_batch_ms')} ms"
        f" (exactly-once: {f.median('micro-batches', ONCE, 'add_batch_ms')} ms); Spark's own sink takes"
        f" {f.median('micro-batches', THEIRS, 'add_batch_ms')} ms. The first one of an application takes"
        f" {_seconds(f, 'first_batch_ms')}, because Python workers have to start."
    )


def _memory(f: _Figures) -> str:
    few, many = (f"{f.median('memory', side, 'peak_rss_mib')} MiB" for side in (FEW, MANY))
    return (
        f"**Memory**: Spark's own sink has no Python workers. Here each core has one, which takes {few} at its peak:"
        f" {f.more('memory', FEW, FLOOR, 'peak_rss_mib')} MiB more than a worker that only reads the rows. With 1,000"
        f" partitions it takes {many}."
    )


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
        f"An executor with 4 cores that writes 10 KB values needs 4 × {one} = {4 * one} MiB for its Python workers: add"
        " that to the overhead that its JVM needs."
    )
    return "" if f.missing else f"{table(('workload', 'peak MiB of a worker'), rows)}\n\n{example}"


def _start(results: Results) -> str:
    f = _Figures(results)
    said = (
        "The first micro-batch of an application has to start the Python workers, and takes"
        f" {f.median('micro-batches', OURS, 'first_batch_ms')} ms (exactly-once:"
        f" {f.median('micro-batches', ONCE, 'first_batch_ms')} ms). Any Python writer would need"
        f" {f.median('micro-batches', FLOOR, 'first_batch_ms')} ms of that; importing the sink takes"
        f" {f.median('import', 'spark_kafka_sink', 'import_s')} s. Spark's own sink runs no Python and takes"
        f" {f.median('micro-batches', THEIRS, 'first_batch_ms')} ms."
    )
    return "" if f.missing else said


_BLOCKS: Mapping[str, Callable[[Results], str]] = {
    "short": _short,
    "compared": _compared,
    "value-sizes": _value_sizes,
    "expect": _expectations,
    "growth": _growth,
    "start": _start,
    "memory-per-core": _memory_per_core,
    "tables": _tables,
    "profiles": _profiles,
    "made": _made,
    "goals": goals,
}
