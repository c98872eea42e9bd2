"""The rows: columns that SQL expressions make out of ``range``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "key"
# 10 to 15 bytes, a million different ones.
_KEY = f"concat('customer-', pmod(xxhash64(id), 1000000)) AS {KEY}"

TOPIC_NUMBER = "topic_number"
"""Column that ``spark_sides`` makes a topic column of, by its remainder."""


def _value(length: int) -> str:
    """A JSON object of ``length`` bytes: names that repeat, digits that do not."""
    fields = """'{"id":', id, ',"state":"', elt(1 + pmod(xxhash64(id, 1), 4), 'new', 'paid', 'sent', 'returned'),
        '","price":', pmod(xxhash64(id, 2), 100000) / 100, ',"token":"', hex(xxhash64(id, 3)), '"'"""
    if length > 100:  # more than enough of them: rpad cuts
        fields += (
            f""", ',"tokens":"', array_join(transform(sequence(1, {length // 16}), i -> hex(xxhash64(id, i))), ',')"""
        )
    return f"concat(rpad(concat({fields}), {length - 1}, ' '), '}}') AS value"


_COLUMNS = (
    "xxhash64(id)",
    "hash(id)",
    "xxhash64(id, 2) * 1e-9D",
    *(f"concat('customer-', xxhash64(id, {number}) & 1048575)" for number in (3, 4, 5)),
    "timestamp_micros(xxhash64(id, 6) & 1125899906842623)",
    "xxhash64(id, 7) > 0",
)
"""As the part ``encoding`` has them: every other one nullable, half of its rows null."""

COLUMN_COUNTS = (8, 50, 200)
"""There is a frame ``columns-<count>`` for each."""


def _many_columns(count: int) -> Iterator[str]:
    """Numbers and strings in turn, every one of them null in half of the rows."""
    for number in range(count):
        text = f"concat('customer-', xxhash64(id, {number}) & 1048575)" if number % 2 else f"xxhash64(id, {number})"
        yield f"if(xxhash64(id, -{number + 1}) > 0, {text}, null) AS c{number}"


FRAMES: Mapping[str, Sequence[str]] = {
    "keyed": (_KEY, _value(100)),
    "keyed-10": (_KEY, "lpad(cast(pmod(xxhash64(id, 3), 10000000000) AS string), 10, '0') AS value"),
    "unkeyed": (_value(100),),
    "keyed-1k": (_KEY, _value(1_000)),
    "keyed-10k": (_KEY, _value(10_000)),
    "keyed-100k": (_KEY, _value(100_000)),
    "keyed-1m": (_KEY, _value(1_000_000)),
    "headers-and-topics": (
        _KEY,
        _value(100),
        "array(named_struct('key', 'source', 'value', cast('shop' AS binary)),"
        " named_struct('key', 'trace', 'value', cast(hex(xxhash64(id, 9)) AS binary))) AS headers",
        f"xxhash64(id, 8) AS {TOPIC_NUMBER}",
    ),
    "topics": (_KEY, _value(100), f"xxhash64(id, 8) AS {TOPIC_NUMBER}"),
    "columns": (
        _KEY,
        *(
            f"{f'if(xxhash64(id, 1{number}) > 0, {column}, null)' if number % 2 else column} AS c{number}"
            for number, column in enumerate(_COLUMNS)
        ),
    ),
    **{f"columns-{count}": (_KEY, *_many_columns(count)) for count in COLUMN_COUNTS},
    # So little work that it need not be cached.
    "cheap": ("cast(id AS string) AS key", "rpad(cast(id AS string), 100, 'abcdefghij') AS value"),
}


def frame(spark: SparkSession, name: str, rows: int, tasks: int) -> DataFrame:
    """``rows`` rows in ``tasks`` partitions."""
    return spark.range(0, rows, 1, tasks).selectExpr(*FRAMES[name])
