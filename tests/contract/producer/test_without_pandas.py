"""The engine never imports pandas, which takes 3 to 5 seconds on a cold disk: records expired meanwhile."""

import datetime as dt
import importlib.util
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa

from tests.unit.encoding.protos import compiled

PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; optional string note = 2; }'
AT = dt.datetime(2026, 5, 4, 3, 2, 1, 5, tzinfo=dt.UTC)
ORDERS = [
    {"id": 1, "note": None, "at": AT, "price": Decimal("1.25"), "day": AT.date(), "lines": [1.5], "state": "NEW",
     "paid": True},
    {"id": 2, "note": "ü", "at": AT, "price": Decimal("10.00"), "day": AT.date(), "lines": [], "state": "PAID",
     "paid": False},
]  # fmt: skip
MESSAGES = [{"id": 1, "note": "x"}, {"id": 2, "note": None}]


def test_incident_the_first_keyed_send_imported_pandas(kafka_test_broker, tmp_path):
    assert importlib.util.find_spec("pandas"), "nothing is tested without it"
    kafka_test_broker.create_topic("t", partitions=3)
    kafka_test_broker.create_topic("other", partitions=2)
    descriptors = tmp_path / "descriptors"
    descriptors.write_bytes(compiled(PROTO))
    orders = tmp_path / "orders"
    table = pa.table({"orders": pa.array(ORDERS), "messages": pa.array(MESSAGES)})
    with pa.ipc.new_file(str(orders), table.schema) as file:
        file.write_table(table)
    program = [sys.executable, "-m", "tests.contract.producer.paths_of_rows"]
    arguments = [kafka_test_broker.bootstrap_servers, str(descriptors), str(orders)]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "11 paths\n"
